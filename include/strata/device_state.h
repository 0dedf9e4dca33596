/* The state of a device, as its runtime and what refers to its memory see it: whether operations are accepted, the
 * current context, and a generation that counts how often the context was rebuilt.
 *
 * Each runtime makes one and drops it when it ends. References (ref.h) do not keep it: they keep a small record of it,
 * which says that the state was dropped. Code that rebuilds a context clears the old one, bumps the generation, and
 * installs the new one, in this order, so that no access to old memory succeeds once the new context is installed. A
 * reset of the primary context (strata_device_check) is no bump: references are stale after it all the same.
 *
 * Calls with a state must end before its runtime does. */
#ifndef STRATA_DEVICE_STATE_H
#define STRATA_DEVICE_STATE_H

#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_device_state strata_device_state;

/* "No device": of a reference after the state was dropped. */
#define STRATA_DEVICE_NONE (-1)

/* The runtime's state, as long as the runtime exists. NULL for NULL. */
STRATA_API strata_device_state *strata_runtime_device_state(strata_runtime *runtime);

/* The device's ordinal; STRATA_DEVICE_NONE for NULL. */
STRATA_API int strata_device_state_device_id(const strata_device_state *state);

/* ---- generation ---- */

/* 0 at first, and one more for each bump. 0 for NULL. */
STRATA_API uint64_t strata_device_state_generation(const strata_device_state *state);

/* The context was rebuilt: adds one to the generation and tells every watch. Every reference made before is stale: an
 * access that begins after this call returned answers STALE. *generation (may be NULL): the new one. Waits for
 * callbacks of other bumps. */
STRATA_API strata_status strata_device_state_bump_generation(strata_device_state *state, uint64_t *generation);

/* ---- shutdown ---- */

/* Whether new references and accesses are allowed. False for NULL. */
STRATA_API bool strata_device_state_accepting_ops(const strata_device_state *state);

/* From now on accesses answer STALE, and no reference is made. Memory of references stays until they are released. A
 * second call does nothing. The runtime's own calls go on. */
STRATA_API strata_status strata_device_state_begin_shutdown(strata_device_state *state);

/* ---- context ---- */

/* The context in which the device's memory is now: at first the primary context. NULL if it was cleared, and for NULL.
 * Strata stores it for its users and makes no call with it. */
STRATA_API CUcontext strata_device_state_current_context(const strata_device_state *state);

/* Replaces it. Errors: INVALID_VALUE (context is NULL). */
STRATA_API strata_status strata_device_state_install_context(strata_device_state *state, CUcontext context);
STRATA_API strata_status strata_device_state_clear_context(strata_device_state *state);

/* ---- watches ---- */

typedef struct strata_generation_watch strata_generation_watch;

/* Called on the thread that bumps, once for each bump, in order. May call Strata, but no function of this header that
 * changes a generation or a watch. */
typedef void (*strata_generation_callback)(uint64_t generation, void *data);

/* Watches the generation from now on: each bump calls `callback` (may be NULL) and makes the watch's file descriptor
 * readable. Errors: OUT_OF_HOST_MEMORY, IO (no descriptor left). */
STRATA_API strata_status strata_generation_watch_create(strata_device_state *state, strata_generation_callback callback,
                                                        void *data, strata_generation_watch **out);

/* An eventfd for poll, select or epoll: readable while changes were not taken. It belongs to the watch: do not close
 * it. -1 for NULL. */
STRATA_API int strata_generation_watch_fd(const strata_generation_watch *watch);

/* Takes the changes since the last call or the beginning: *changes (may be NULL) is their number, 0 for none, and the
 * descriptor is readable no more. Never blocks. Also after the state was dropped. */
STRATA_API strata_status strata_generation_watch_take(strata_generation_watch *watch, uint64_t *changes);

/* Destroys the watch and closes its descriptor. Waits until no callback of it runs; not to be called from one. Also
 * after the state was dropped. NULL is ignored. */
STRATA_API strata_status strata_generation_watch_destroy(strata_generation_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
