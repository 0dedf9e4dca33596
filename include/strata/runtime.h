/* The runtime: what exists once for each device of the process. It owns a stack and a pool of streams, and orders the
 * uses of every block between streams.
 *
 * Streams. A stream is *known* if it comes from strata_runtime_stream_acquire() or was registered; the legacy default
 * stream is known by itself. Its owner promises to unregister it before destroying it and not to capture it behind
 * Strata's back; then nothing is asked of the driver when it is used. Every other stream, CU_STREAM_PER_THREAD too, is
 * *unknown*: it is identified at each use and its handle is never kept.
 *
 * Threads: every function may be called on any thread unless it says otherwise. After the driver has shut down (exit
 * handlers), frees succeed without doing anything and all else answers SHUT_DOWN; in a forked child everything answers
 * FORKED. */
#ifndef STRATA_RUNTIME_H
#define STRATA_RUNTIME_H

#include <strata/stack.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_runtime strata_runtime;

/* When events are recorded on known streams. */
typedef enum strata_event_mode {
    STRATA_EVENTS_DEFAULT = 0, /* the better one as measured: late */
    STRATA_EVENTS_LATE,  /* when another stream needs one: costs nothing on one stream, may also wait for later work */
    STRATA_EVENTS_EARLY, /* one for each allocation, committed launch, and use outside of launches: waits are tight, and
                          * cover no work that was not noted */
} strata_event_mode;

/* All zero is the default. */
typedef struct strata_runtime_config {
    uint32_t size;            /* sizeof(strata_runtime_config), or 0 */
    int device;               /* ordinal */
    const char *stack_text;   /* NULL: the environment's STRATA_STACK, else the default stack. Copied. */
    strata_stack *stack;      /* instead of a text: a stack of this device that no other runtime has. The runtime then
                                 owns it and ends it; where making the runtime fails, it stays the caller's. */
    uint32_t stream_capacity; /* most streams of the stream pool; 0: 16 */
    strata_event_mode events;
} strata_runtime_config;

/* The process's one runtime of the device `ordinal`. The first caller builds it from the environment, others wait for
 * that one; if that fails nothing is left and the next caller tries again. Later calls take no lock. It lives until the
 * process ends. Errors: INVALID_VALUE (no such device; called by a layer of a runtime that is being built here, or by a
 * callback meanwhile), DRIVER_NOT_FOUND, DRIVER, SYNTAX (in STRATA_STACK),
 * OUT_OF_HOST_MEMORY, SHUT_DOWN, FORKED. */
STRATA_API strata_status strata_runtime_get(int ordinal, strata_runtime **out);

/* Makes a private runtime, for tests and for several stacks side by side. NULL config is the default. Errors as above.
 */
STRATA_API strata_status strata_runtime_create(const strata_runtime_config *config, strata_runtime **out);

/* The stack that a runtime gets when nobody gives it one: the environment's STRATA_STACK, else, also where that is
 * blank, the default, "budget, logging(format=memory), statistics, pool": without a limit until one is set, the newest
 * records kept for strata_logging_take. */
STRATA_API const char *strata_runtime_default_stack(void);

/* Ends a private runtime with its stack and streams; waits for pending frees. BUSY, and nothing done, while blocks are
 * live or streams acquired. Its streams end as strata_runtime_unregister_stream says, and what that asks of its caller
 * holds here, too. INVALID_VALUE for the singleton. After any other error the runtime is still there, and the
 * next call goes on from what is left. NULL is ignored. */
STRATA_API strata_status strata_runtime_destroy(strata_runtime *runtime);

/* The runtime's device ordinal and its stack, which stays the runtime's. For NULL: -1 and NULL. */
STRATA_API int strata_runtime_device(const strata_runtime *runtime);
STRATA_API strata_stack *strata_runtime_stack(strata_runtime *runtime);

/* ---- memory ---- */

/* Allocates `bytes` for work on `stream`. Zero bytes succeed with an empty block. On failure *out is zeroed.
 * Errors: OUT_OF_MEMORY, OUT_OF_BUDGET, OUT_OF_HOST_MEMORY, STREAM_CAPTURE, UNSUPPORTED (alignment), INVALID_VALUE,
 * DRIVER. */
STRATA_API strata_status strata_runtime_allocate(strata_runtime *runtime, size_t bytes, CUstream stream,
                                                 strata_block *out);

/* The same with everything that can be asked. */
STRATA_API strata_status strata_runtime_allocate_request(strata_runtime *runtime, const strata_request *request,
                                                         strata_block *out);

/* Frees a block in the order of the stream on which it was allocated, after every noted use. That stream must be known,
 * or be the calling thread's CU_STREAM_PER_THREAD: the handle of any other may be dead, so the free is refused with
 * STREAM_MISUSE and the block stays live. If the stream was unregistered since, the free is ordered after what it had
 * been given until then. Errors: DOUBLE_FREE, FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE, BLOCK_IN_USE,
 * STREAM_MISUSE, DRIVER; each leaves the block as it was. */
STRATA_API strata_status strata_runtime_deallocate(strata_runtime *runtime, const strata_block *block);

/* Frees a block in the order of `stream`, after every noted use. Errors as above, and INVALID_VALUE for
 * STRATA_STREAM_GONE, which is for layers: a block whose stream was unregistered is freed by strata_runtime_deallocate.
 */
STRATA_API strata_status strata_runtime_deallocate_on(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream);

/* The same for code that has no more than a pointer: frees the live block that begins at `address`; 0 is ignored. Costs
 * a search, and tells less than an identity: a pointer that was freed before and is that of a later block now frees
 * that one. Errors: FOREIGN_POINTER (no live block of this runtime, or an address inside of one), UNSUPPORTED (the
 * stack does not search by address), and as above. After the driver has shut down it succeeds, like any free. */
STRATA_API strata_status strata_runtime_deallocate_address(strata_runtime *runtime, CUdeviceptr address,
                                                           CUstream stream);

/* Live and retired bytes of the stack. */
STRATA_API size_t strata_runtime_bytes_outstanding(strata_runtime *runtime);

/* Everything that the stack's owner of memory counts. Errors: SHUT_DOWN, FORKED, and DRIVER where the driver cannot be
 * asked for what is reserved; *usage has the rest then. */
STRATA_API strata_status strata_runtime_usage(strata_runtime *runtime, strata_usage *usage);

/* Waits for every pending free and counts its bytes as free. If a stream's synchronization fails, what was reaped stays
 * reaped, the rest stays pending for the next try, and the error is returned. */
STRATA_API strata_status strata_runtime_reap_pending(strata_runtime *runtime);

/* Gives free memory back to the device until at most keep_bytes stay reserved. `released` may be NULL: bytes, or 0
 * where the driver does not tell. A pool waits for the work on what lies free; layers that do not (fixed, binning) keep
 * what work may still touch: strata_runtime_reap_pending before it waits for all. */
STRATA_API strata_status strata_runtime_trim(strata_runtime *runtime, size_t keep_bytes, size_t *released);

/* The live block that contains `address`. Errors: FOREIGN_POINTER, UNSUPPORTED. */
STRATA_API strata_status strata_runtime_find(strata_runtime *runtime, CUdeviceptr address, strata_block *out);

/* The state of an identity; FREED for a stale or foreign one. */
STRATA_API strata_block_state strata_runtime_block_state(strata_runtime *runtime, strata_block_id id);

/* ---- uses across streams ---- */

/* Whether the stack keeps cross-stream use correct. If not, the functions below answer STREAM_MISUSE. */
STRATA_API bool strata_runtime_supports_block_use_tracking(strata_runtime *runtime);

/* Makes `stream` wait for earlier uses that conflict with `access` and pins the block until the matching finish, after
 * the work was submitted. A pinned block cannot be freed, unless another thread frees it while the one that allocated
 * it is in prepare, with nothing ordering the two: then finish says USE_AFTER_FREE. A failed prepare notes and pins
 * nothing.
 *
 * Work on a block goes between the two on its own stream too, unless no other stream ever uses or frees the block: for
 * work that was not noted nobody waits.
 *
 * The matching finish comes from the same thread, on the same stream, with the same access or a weaker one (READ after
 * READ_WRITE if the work only read, NONE if it was not submitted). A finish that nobody prepared answers STREAM_MISUSE;
 * beyond that none of this is checked. A finish on another stream notes the use there and not where it runs; one with a
 * stronger access notes a write that was not ordered after other streams' reads. Errors: USE_AFTER_FREE,
 * FOREIGN_POINTER, STREAM_CAPTURE, STREAM_MISUSE, OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_runtime_prepare_block_use(strata_runtime *runtime, const strata_block *block,
                                                          CUstream stream, strata_access access);
STRATA_API strata_status strata_runtime_finish_block_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream, strata_access access);

/* The same for scratch memory that was allocated just now and that nobody has used: only the allocation is waited for,
 * and the use is a write. A block that was used before answers STREAM_MISUSE. */
STRATA_API strata_status strata_runtime_prepare_first_use(strata_runtime *runtime, const strata_block *block,
                                                          CUstream stream);
STRATA_API strata_status strata_runtime_finish_first_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream);

/* Notes work that has been submitted to `stream` already, when no prepare was made: later uses and the free wait for
 * it. Errors as for prepare. */
STRATA_API strata_status strata_runtime_record_block_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream, strata_access access);

/* ---- streams ---- */

/* Makes a stream of the user's own known to Strata. A stream is registered once. Errors: INVALID_VALUE (registered
 * already, or a default stream), STREAM_CAPTURE, WRONG_DEVICE, BUSY (65,534 streams have work or blocks),
 * OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_runtime_register_stream(strata_runtime *runtime, CUstream stream);

/* Ends that, before the stream is destroyed. What was given to it so far is remembered. Other threads may finish uses
 * of the stream meanwhile, and free blocks that were allocated on it with strata_runtime_deallocate, which finds the
 * stream by itself: such frees that are under way, of whatever block, are waited for. So the caller must hold no lock
 * that a callback in a free takes, and not be in one itself where another thread may be, too. None may be in a call
 * that is given this stream, as an allocation is and strata_runtime_deallocate_on. Errors: INVALID_VALUE (not
 * registered here), DRIVER.
 *
 * A registered stream that was destroyed first cannot be unregistered any more, since there is nothing left to record
 * the closing event on, and calling the driver with its handle is undefined. Its runtime cannot be destroyed either:
 * leave it alone until the process ends. */
STRATA_API strata_status strata_runtime_unregister_stream(strata_runtime *runtime, CUstream stream);

/* Takes a non-blocking stream from the runtime's pool, and gives it back. STREAMS_EXHAUSTED at capacity: no other
 * stream is ever handed out in its place. */
STRATA_API strata_status strata_runtime_stream_acquire(strata_runtime *runtime, CUstream *out);
STRATA_API strata_status strata_runtime_stream_release(strata_runtime *runtime, CUstream stream);

/* Waits on the host until everything that was submitted to `stream` before is complete, as cuStreamSynchronize does,
 * and tells Strata so: memory that was freed there, unless uses on other streams are noted of it and not complete, can
 * then be any stream's without a question to the driver. Where a program waits for a stream anyway, such as a server at
 * the end of each request, it best waits so. It is cuStreamSynchronize and two exchanges of the thread's capture mode,
 * so that no capture of another stream ends of it; an unknown stream is identified before. On default streams an event
 * is recorded and waited for.
 *
 * A registered stream stays registered, and is not captured, until the call has returned. Not for host functions
 * (cuLaunchHostFunc), which may call nothing of the driver's. Errors: STREAM_CAPTURE (an unknown stream that is being
 * captured; the legacy stream while a capture bars it), INVALID_VALUE (STRATA_STREAM_GONE), OUT_OF_HOST_MEMORY,
 * DRIVER. */
STRATA_API strata_status strata_runtime_stream_synchronize(strata_runtime *runtime, CUstream stream);

/* ---- what stream 0 means ---- */

/* strata_runtime_allocate_request with stream 0 as the calling thread's own default stream. */
STRATA_API strata_status strata_runtime_allocate_request_ptsz(strata_runtime *runtime, const strata_request *request,
                                                              strata_block *out);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_runtime_allocate(runtime, bytes, stream, out) \
    strata_runtime_allocate(runtime, bytes, strata_stream_as_meant(stream), out)
#define strata_runtime_allocate_request strata_runtime_allocate_request_ptsz
#define strata_runtime_deallocate_on(runtime, block, stream) \
    strata_runtime_deallocate_on(runtime, block, strata_stream_as_meant(stream))
#define strata_runtime_deallocate_address(runtime, address, stream) \
    strata_runtime_deallocate_address(runtime, address, strata_stream_as_meant(stream))
#define strata_runtime_stream_synchronize(runtime, stream) \
    strata_runtime_stream_synchronize(runtime, strata_stream_as_meant(stream))
#define strata_runtime_prepare_block_use(runtime, block, stream, access) \
    strata_runtime_prepare_block_use(runtime, block, strata_stream_as_meant(stream), access)
#define strata_runtime_finish_block_use(runtime, block, stream, access) \
    strata_runtime_finish_block_use(runtime, block, strata_stream_as_meant(stream), access)
#define strata_runtime_prepare_first_use(runtime, block, stream) \
    strata_runtime_prepare_first_use(runtime, block, strata_stream_as_meant(stream))
#define strata_runtime_finish_first_use(runtime, block, stream) \
    strata_runtime_finish_first_use(runtime, block, strata_stream_as_meant(stream))
#define strata_runtime_record_block_use(runtime, block, stream, access) \
    strata_runtime_record_block_use(runtime, block, strata_stream_as_meant(stream), access)
#endif

#ifdef __cplusplus
}
#endif

#endif
