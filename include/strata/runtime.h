/* The runtime, one for each device of the process, owns a stack and a pool of streams, and orders the uses of every
 * block across streams.
 *
 * A stream is *known* if strata_runtime_stream_acquire() returned it or it was registered; the legacy default stream
 * always is. The owner of a known stream promises to unregister it before destroying it and to capture it only through
 * Strata; the driver is then not asked about it. Every other stream, CU_STREAM_PER_THREAD included, is *unknown*: the
 * driver identifies it at each use, and its handle is not kept.
 *
 * After the driver has shut down (in exit handlers), frees succeed without effect and all other calls answer SHUT_DOWN.
 * After a reset of the device's primary context its runtimes and stacks answer DEVICE_RESET to all calls but frees and
 * destruction, which succeed; strata_device_check (info.h) says when that is noticed. What memory they hold goes back
 * to the driver when the device's next stack is built, also of blocks that were not freed. In a forked child every call
 * answers FORKED. */
#ifndef STRATA_RUNTIME_H
#define STRATA_RUNTIME_H

#include <strata/stack.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_runtime strata_runtime;

/* When events are recorded on known streams. */
typedef enum strata_event_mode {
    STRATA_EVENTS_DEFAULT = 0, /* late */
    STRATA_EVENTS_LATE,        /* when another stream needs one: free on a single stream; may wait for later work too */
    STRATA_EVENTS_EARLY, /* at each allocation, committed launch, and use outside of launches: waits cover recorded work
                            alone */
} strata_event_mode;

typedef struct strata_runtime_config {
    uint32_t size;
    int device;
    const char *stack_text; /* NULL: strata_runtime_default_stack(); copied */
    strata_stack
        *stack; /* instead: a stack of this device without a runtime; taken over, or the caller's after a failed call */
    uint32_t stream_capacity; /* of the stream pool; 0: 16 */
    strata_event_mode events;
} strata_runtime_config;

/* The process's runtime of the device with this ordinal, until the process ends or the device's primary
 * context is reset: then the next call builds another one, and the old one, which stays valid, answers as above. The
 * first caller builds it from the environment; concurrent callers wait; after a failure the next caller tries again.
 * Later calls take no lock, and ask the driver whether the context is the same still. Errors: INVALID_VALUE (no such
 * device; called by a layer or callback while this runtime is being built), DRIVER_NOT_FOUND, IO (too few file
 * descriptors are left to open the driver), DRIVER, SYNTAX (in STRATA_STACK), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_runtime_get(int ordinal, strata_runtime **out);

/* The same if it was built, else NULL: for code that chooses its stack, which comes too late then. Opens no driver.
 * Errors: INVALID_VALUE (the device is below 0 or above 63), FORKED. */
STRATA_API strata_status strata_runtime_get_if_present(int ordinal, strata_runtime **out);

/* Makes a private runtime. NULL config: the defaults. Errors as above. */
STRATA_API strata_status strata_runtime_create(const strata_runtime_config *config, strata_runtime **out);

/* The default stack text: the environment's STRATA_STACK if it is not blank, else "budget, logging(format=memory),
 * statistics, pool(peers=all)". */
STRATA_API const char *strata_runtime_default_stack(void);

/* Destroys a private runtime with its stack and streams, which end as by strata_runtime_unregister_stream, under its
 * conditions; waits for pending frees, and for all work of a device, also of other libraries, where
 * strata_runtime_reap_pending does. strata_runtime_abandon (ref.h) ends one whose references live on. Errors without
 * effect: BUSY (live blocks, live references or acquired streams), INVALID_VALUE (from strata_runtime_get). After any
 * other, and BUSY for a stream that is held as last writer, the runtime exists, and the next call continues. NULL is
 * ignored. */
STRATA_API strata_status strata_runtime_destroy(strata_runtime *runtime);

/* Its device's ordinal, and its stack, which it owns. For NULL: -1 and NULL. */
STRATA_API int strata_runtime_device(const strata_runtime *runtime);
STRATA_API strata_stack *strata_runtime_stack(strata_runtime *runtime);

/* ---- memory ---- */

/* Allocates `bytes` for work on `stream`. On failure *out is zeroed. Errors: OUT_OF_MEMORY, OUT_OF_BUDGET,
 * OUT_OF_HOST_MEMORY, STREAM_CAPTURE, UNSUPPORTED (alignment), DRIVER. */
STRATA_API strata_status strata_runtime_allocate(strata_runtime *runtime, size_t bytes, CUstream stream,
                                                 strata_block *out);

/* The same with alignment and tag. */
STRATA_API strata_status strata_runtime_allocate_request(strata_runtime *runtime, const strata_request *request,
                                                         strata_block *out);

/* Frees a block in the order of its allocation stream, after every recorded use. That stream must be known, or be the
 * calling thread's CU_STREAM_PER_THREAD: another handle may be dead, and is refused with STREAM_MISUSE. If it was
 * unregistered, the free is ordered after the work that it had then. Errors leave the block live: DOUBLE_FREE,
 * FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE, BLOCK_IN_USE, STREAM_MISUSE, DRIVER. */
STRATA_API strata_status strata_runtime_deallocate(strata_runtime *runtime, const strata_block *block);

/* As above, in the order of `stream`. Errors: also INVALID_VALUE for STRATA_STREAM_GONE. */
STRATA_API strata_status strata_runtime_deallocate_on(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream);

/* As strata_runtime_deallocate_on, for the live block that begins at `address` (0 is ignored): slower and less safe,
 * since a stale pointer frees the block that has the address now. Errors: also FOREIGN_POINTER (no live block of this
 * runtime begins there), UNSUPPORTED (no search by address). */
STRATA_API strata_status strata_runtime_deallocate_address(strata_runtime *runtime, CUdeviceptr address,
                                                           CUstream stream);

/* Live and retired bytes of the stack. */
STRATA_API size_t strata_runtime_bytes_outstanding(strata_runtime *runtime);

/* The counts of the stack's owner. Errors: DRIVER if the driver cannot report what is reserved; *usage then has the
 * rest. */
STRATA_API strata_status strata_runtime_usage(strata_runtime *runtime, strata_usage *usage);

/* What may still be allocated. */
typedef struct strata_runtime_budget {
    size_t limit;       /* of the stack's nearest budget, for the calling thread; 0: none */
    size_t in_use;      /* counted towards it; without a budget: live and retired bytes */
    size_t remaining;   /* until the limit; SIZE_MAX without one */
    size_t device_free; /* as the driver reports it; 0 if it does not */
} strata_runtime_budget;

/* Fills *budget in one call. Other threads' requests may change each figure meanwhile. */
STRATA_API strata_status strata_runtime_budget_snapshot(strata_runtime *runtime, strata_runtime_budget *budget);

/* Waits for every pending free and counts its bytes as free. If a stream cannot be synchronized, the error is returned,
 * and what was not reaped stays pending. Where a stream has work that could be neither recorded nor waited for, it
 * waits for all work of that stream's device, also of other libraries, and where that stream could not be identified,
 * of every device that Strata uses; if that fails, the error is returned, and that work's end stays unknown. Errors:
 * DRIVER, OUT_OF_MEMORY, OUT_OF_HOST_MEMORY, STREAM_MISUSE. */
STRATA_API strata_status strata_runtime_reap_pending(strata_runtime *runtime);

/* Returns free memory to the device until at most keep_bytes stay reserved. *released (may be NULL): bytes, 0 where the
 * driver does not report them. A pool waits for work on free memory. fixed and binning keep memory that work may still
 * use: call strata_runtime_reap_pending first. */
STRATA_API strata_status strata_runtime_trim(strata_runtime *runtime, size_t keep_bytes, size_t *released);

/* The live block that contains `address`. Errors: FOREIGN_POINTER, UNSUPPORTED. */
STRATA_API strata_status strata_runtime_find(strata_runtime *runtime, CUdeviceptr address, strata_block *out);

/* The runtime, of any device, private ones included, whose live block contains `address`. It is valid while the block
 * is live: a runtime with live blocks is not destroyed. One that was abandoned (ref.h) is not found. Errors:
 * FOREIGN_POINTER. *out is NULL then. */
STRATA_API strata_status strata_runtime_of_address(CUdeviceptr address, strata_runtime **out);

/* The state of an identity; FREED: also stale or foreign. */
STRATA_API strata_block_state strata_runtime_block_state(strata_runtime *runtime, strata_block_id id);

/* ---- uses across streams ---- */

/* Whether the stack orders uses across streams; else the functions below answer STREAM_MISUSE. */
STRATA_API bool strata_runtime_supports_block_use_tracking(strata_runtime *runtime);

/* prepare makes `stream` wait for earlier uses that conflict with `access` and pins the block; a failed one does
 * nothing. finish follows the submission of the work, records the use, and unpins. Work on a block's own stream needs
 * the pair too, unless no other stream uses or frees the block.
 *
 * A pinned block cannot be freed, unless another thread frees it while the allocating thread is inside prepare, with
 * nothing to order the two: finish then answers USE_AFTER_FREE.
 *
 * finish comes from the same thread, on the same stream, with the same or a weaker access (NONE: not submitted).
 * Without a prepare it answers STREAM_MISUSE; the rest is not checked: on another stream it records the use there; with
 * a stronger access it records a write that was not ordered after other streams' reads. After DRIVER or
 * OUT_OF_HOST_MEMORY the use could be neither recorded nor waited for, and the block is not pinned any more: the caller
 * waits for the work before the block is freed, or used on another stream. Strata refuses both, STREAM_MISUSE, until it
 * learns of that work's end: by a later use of the stream, or strata_runtime_stream_synchronize for it; or, if an event
 * was recorded on the stream once, or it was registered, by strata_runtime_reap_pending. If the driver did not identify
 * the stream, only strata_runtime_reap_pending tells, and a free that waits for the device (strata_free, the last
 * release of a reference that other libraries used). Errors: USE_AFTER_FREE, FOREIGN_POINTER, STREAM_CAPTURE,
 * STREAM_MISUSE, OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_runtime_prepare_block_use(strata_runtime *runtime, const strata_block *block,
                                                          CUstream stream, strata_access access);
STRATA_API strata_status strata_runtime_finish_block_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream, strata_access access);

/* As above, for the first use of a fresh block, which waits for the allocation alone. STREAM_MISUSE after any use. */
STRATA_API strata_status strata_runtime_prepare_first_use(strata_runtime *runtime, const strata_block *block,
                                                          CUstream stream, strata_access access);
STRATA_API strata_status strata_runtime_finish_first_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream, strata_access access);

/* Records work submitted to `stream` without a prepare: later uses and the free wait for it. Errors as for prepare. */
STRATA_API strata_status strata_runtime_record_block_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream, strata_access access);

/* The block is in use by all work that is submitted to `stream` until its free, as by PyTorch's record_stream: the
 * free, on whichever stream, records a use there, as by strata_runtime_record_block_use, and the memory is reused after
 * it. Other uses of the block are not ordered after that work. Naming a stream again changes nothing and costs no
 * driver call.
 *
 * A known stream may be unregistered before the free: then its work up to there counts. The handle of an unknown stream
 * must be valid until the free has returned (with a reference: its last release). Where the free cannot identify that
 * stream (it is being captured, or is another thread's CU_STREAM_PER_THREAD), it waits for all work of the device.
 * In a capture of Strata's the stream's graph keeps the block, as strata_runtime_record_block_use does.
 *
 * The free is one of the runtime's, or a reference's; strata_resource_deallocate ignores these uses. Errors:
 * USE_AFTER_FREE, FOREIGN_POINTER, STREAM_MISUSE (no use tracking), STREAM_CAPTURE, OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_runtime_use_until_free(strata_runtime *runtime, const strata_block *block,
                                                       CUstream stream);

/* ---- streams ---- */

/* Makes a stream of the program known. Errors: INVALID_VALUE (registered, or a default stream), STREAM_CAPTURE,
 * WRONG_DEVICE, BUSY (65,534 streams have work or blocks), OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_runtime_register_stream(strata_runtime *runtime, CUstream stream);

/* Unregisters a stream; must precede its destruction: a destroyed stream cannot be unregistered (any driver call with
 * the handle is undefined), nor its runtime destroyed. Work submitted so far is remembered. Other threads may meanwhile
 * finish uses of the stream, and free blocks that were allocated on it with strata_runtime_deallocate; they must be in
 * no other call with the stream as an argument. The call waits for such frees in flight: the caller holds no lock that
 * a callback in a free takes, and is in no such callback itself while another thread may be. Errors: INVALID_VALUE (not
 * registered here), BUSY (held as last writer: ref.h), DRIVER. */
STRATA_API strata_status strata_runtime_unregister_stream(strata_runtime *runtime, CUstream stream);

/* Take a non-blocking stream from the runtime's pool, never shared, and return it. STREAMS_EXHAUSTED at capacity. */
STRATA_API strata_status strata_runtime_stream_acquire(strata_runtime *runtime, CUstream *out);
STRATA_API strata_status strata_runtime_stream_release(strata_runtime *runtime, CUstream stream);

/* Waits on the host until all work submitted to `stream` is complete, as cuStreamSynchronize, and tells Strata so:
 * memory freed there becomes usable by any stream without a driver query, unless recorded uses on other streams are
 * pending. It adds two exchanges of the thread's capture mode, which protect other streams' captures; an unknown stream
 * is identified first; on default streams an event is recorded and waited for.
 *
 * A registered stream must stay registered and uncaptured until the call returns. Not allowed in host functions
 * (cuLaunchHostFunc), which may not call the driver. Errors: STREAM_CAPTURE (an unknown stream is being captured; a
 * capture bars the legacy stream), INVALID_VALUE (STRATA_STREAM_GONE), OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_runtime_stream_synchronize(strata_runtime *runtime, CUstream stream);

/* ---- what stream 0 means ---- */

/* strata_runtime_allocate_request with stream 0 as the calling thread's default stream. */
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
#define strata_runtime_prepare_first_use(runtime, block, stream, access) \
    strata_runtime_prepare_first_use(runtime, block, strata_stream_as_meant(stream), access)
#define strata_runtime_finish_first_use(runtime, block, stream, access) \
    strata_runtime_finish_first_use(runtime, block, strata_stream_as_meant(stream), access)
#define strata_runtime_record_block_use(runtime, block, stream, access) \
    strata_runtime_record_block_use(runtime, block, strata_stream_as_meant(stream), access)
#define strata_runtime_use_until_free(runtime, block, stream) \
    strata_runtime_use_until_free(runtime, block, strata_stream_as_meant(stream))
#endif

#ifdef __cplusplus
}
#endif

#endif
