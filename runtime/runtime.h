/* What the runtime's files share. */
#ifndef STRATA_RUNTIME_RUNTIME_H
#define STRATA_RUNTIME_RUNTIME_H

#include "core/base/driver_state.h"
#include "core/base/lock.h"
#include "core/stack/stack.h"
#include "core/streams/device.h"
#include "runtime/kept_blocks.h"
#include "runtime/open_uses.h"

#include <strata/device_state.h>
#include <strata/graph.h>
#include <strata/runtime.h>

struct strata_ref;
struct strata_capture;

/* The blocks of all capture pools, by slot: see runtime/capture_blocks.h. */
typedef struct strata_pool_block_map {
    struct strata_pool_block **buckets; /* a power of two; NULL before the first pool */
    uint32_t mask, count;
} strata_pool_block_map;

/* See runtime/captures.h. */
typedef struct strata_captures {
    strata_spin lock;      /* nearly always one thread's; held for questions to the driver */
    _Atomic uint32_t live; /* captures under way; written under the lock, read by any thread */
    _Atomic bool used;     /* a pool, capture or open use was made, or a block registered; never cleared */
    struct strata_capture *list;
    strata_capture_pool *pools;
    strata_pool_block_map pool_blocks;
    strata_kept_blocks kept;
    strata_status (*end_pool)(strata_capture_pool *pool); /* constant: called when its last holder is gone */
    uint64_t graphs;                                      /* graphs that exist */
    size_t pools_left;                                    /* pools whose end has failed: it is tried again */
    uint64_t last_number;                                 /* of the latest pool */
} strata_captures;

static inline void strata_captures_lock(strata_captures *captures)
{
    strata_spin_take(&captures->lock);
}

static inline void strata_captures_unlock(strata_captures *captures)
{
    strata_spin_release(&captures->lock);
}

typedef struct strata_stream_slot {
    CUstream stream;
    bool pooled; /* created here; else the user's own */
    bool taken;
} strata_stream_slot;

struct strata_runtime {
    strata_device *device; /* these are constant */
    strata_stack *stack;
    strata_table *table; /* the stack's */
    strata_resource *top;
    bool tracks;
    bool tracks_plainly; /* no layer hears of uses */
    bool hears_graphs;   /* a layer hears of captures and graphs */
    bool early_events;
    bool singleton;
    uint32_t stream_capacity;
    strata_device_state *state;                  /* until the runtime is destroyed or abandoned */
    _Atomic(struct strata_ref *) deferred_frees; /* references whose memory could not be freed yet; any thread */

    strata_captures captures;
    strata_open_uses open_uses;

    strata_lock streams_lock;
    strata_stream_slot *streams; /* pooled and registered streams; guarded by streams_lock */
    size_t stream_count, stream_room;
};

/* Raises BUSY while pooled streams are acquired. */
strata_status strata_check_streams_released(strata_runtime *runtime);

/* Destroys and unregisters the runtime's streams. On an error the remaining streams are unchanged, for another try; a
 * stream that the driver fails to destroy is reported once and dropped. */
strata_status strata_streams_destroy(strata_runtime *runtime);

/* SUCCESS, or an error: no runtime, shut down, forked, or the device was reset. */
static inline strata_status strata_check_runtime(const strata_runtime *runtime)
{
    if (__builtin_expect(runtime == NULL, 0))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "runtime is NULL");
    const strata_status status = strata_check_driver();
    return status == STRATA_SUCCESS ? strata_check_device(runtime->device) : status;
}

/* As strata_check_runtime, and asks the driver about a reset: before stored handles are used, off the fast paths. */
static inline strata_status strata_check_runtime_now(const strata_runtime *runtime)
{
    const strata_status status = strata_check_runtime(runtime);
    return status == STRATA_SUCCESS ? strata_check_device_now(runtime->device) : status;
}

#endif
