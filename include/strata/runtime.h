/* The runtime: one for each device of the process. It owns a stack and a pool of streams, and orders the uses of every
 * block across streams.
 *
 * Streams. A stream is *known* if strata_runtime_stream_acquire() returned it or it was registered; the legacy default
 * stream is always known. The owner of a known stream promises to unregister it before destroying it and to capture it
 * only through Strata; the driver is then not asked about it. Every other stream, CU_STREAM_PER_THREAD included, is
 * *unknown*: the driver identifies it at each use, and its handle is not kept.
 *
 * Threads: every function may be called on any thread unless it says otherwise. After the driver has shut down (in exit
 * handlers), frees succeed without effect and all other calls answer SHUT_DOWN. In a forked child every call answers
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
    STRATA_EVENTS_DEFAULT = 0, /* as measured best: late */
    STRATA_EVENTS_LATE,  /* when another stream needs one: free on a single stream; may also wait for later work */
    STRATA_EVENTS_EARLY, /* one for each allocation, committed launch, and use outside of launches: waits cover recorded
                            work alone */
} strata_event_mode;

/* All zero is the default. */
typedef struct strata_runtime_config {
    uint32_t size;            /* sizeof(strata_runtime_config), or 0 */
    int device;               /* ordinal */
    const char *stack_text;   /* NULL: the environment's STRATA_STACK, else the default stack; copied */
    strata_stack *stack;      /* instead of a text: a stack of this device without a runtime. The runtime takes it over;
                                 after a failed call it stays the caller's. */
    uint32_t stream_capacity; /* most streams of the stream pool; 0: 16 */
    strata_event_mode events;
} strata_runtime_config;

/* The process's runtime of the device with this ordinal. The first caller builds it from the environment; concurrent
 * callers wait. A failed build leaves nothing, and the next caller tries again. Later calls take no lock. The runtime
 * lives until the process ends. Errors: INVALID_VALUE (no such device; called by a layer or a callback while this
 * runtime is being built), DRIVER_NOT_FOUND, DRIVER, SYNTAX (in STRATA_STACK), OUT_OF_HOST_MEMORY, SHUT_DOWN, FORKED.
 */
STRATA_API strata_status strata_runtime_get(int ordinal, strata_runtime **out);

/* Makes a private runtime, for tests and for several stacks side by side. NULL config: the defaults. Errors as above.
 */
STRATA_API strata_status strata_runtime_create(const strata_runtime_config *config, strata_runtime **out);

/* The stack text of a runtime that is given none: the environment's STRATA_STACK if it is not blank, else "budget,
 * logging(format=memory), statistics, pool": no limit until one is set, and the newest records kept for
 * strata_logging_take. */
STRATA_API const char *strata_runtime_default_stack(void);

/* Destroys a private runtime with its stack and streams; waits for pending frees. BUSY, without effect, while blocks
 * are live or streams acquired; INVALID_VALUE for a runtime of strata_runtime_get. Its streams are ended as
 * strata_runtime_unregister_stream describes, under the same conditions. After any other error the runtime exists, and
 * the next call continues. NULL is ignored. */
STRATA_API strata_status strata_runtime_destroy(strata_runtime *runtime);

/* The runtime's device ordinal and its stack, which the runtime owns. For NULL: -1 and NULL. */
STRATA_API int strata_runtime_device(const strata_runtime *runtime);
STRATA_API strata_stack *strata_runtime_stack(strata_runtime *runtime);

/* ---- memory ---- */

/* Allocates `bytes` for work on `stream`. Zero bytes give an empty block. On failure *out is zeroed. Errors:
 * OUT_OF_MEMORY, OUT_OF_BUDGET, OUT_OF_HOST_MEMORY, STREAM_CAPTURE, UNSUPPORTED (alignment), INVALID_VALUE, DRIVER. */
STRATA_API strata_status strata_runtime_allocate(strata_runtime *runtime, size_t bytes, CUstream stream,
                                                 strata_block *out);

/* As strata_runtime_allocate, with alignment and tag. */
STRATA_API strata_status strata_runtime_allocate_request(strata_runtime *runtime, const strata_request *request,
                                                         strata_block *out);

/* Frees a block in the order of its allocation stream, after every recorded use. That stream must be known, or be the
 * calling thread's CU_STREAM_PER_THREAD; otherwise its handle may be dead, and the free is refused with STREAM_MISUSE.
 * If the stream was unregistered, the free is ordered after the work that it had then. Errors leave the block live:
 * DOUBLE_FREE, FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE, BLOCK_IN_USE, STREAM_MISUSE, DRIVER. */
STRATA_API strata_status strata_runtime_deallocate(strata_runtime *runtime, const strata_block *block);

/* Frees a block in the order of `stream`, after every recorded use. Errors as above, and INVALID_VALUE for
 * STRATA_STREAM_GONE. */
STRATA_API strata_status strata_runtime_deallocate_on(strata_runtime *runtime, const strata_block *block,
                                                      CUstream stream);

/* Frees the live block that begins at `address`, as strata_runtime_deallocate_on; 0 is ignored. It costs a search and
 * is less safe than a free by identity: a stale pointer frees the block that has the address now. Errors:
 * FOREIGN_POINTER (no live block of this runtime begins there), UNSUPPORTED (the stack has no search by address), and
 * as above. Succeeds after the driver has shut down. */
STRATA_API strata_status strata_runtime_deallocate_address(strata_runtime *runtime, CUdeviceptr address,
                                                           CUstream stream);

/* Live and retired bytes of the stack. */
STRATA_API size_t strata_runtime_bytes_outstanding(strata_runtime *runtime);

/* The counts of the stack's owner of memory. Errors: SHUT_DOWN, FORKED, and DRIVER if the driver cannot report what is
 * reserved; *usage then has the rest. */
STRATA_API strata_status strata_runtime_usage(strata_runtime *runtime, strata_usage *usage);

/* Waits for every pending free and counts its bytes as free. If a stream cannot be synchronized, what was reaped stays
 * reaped, the rest stays pending, and the error is returned. */
STRATA_API strata_status strata_runtime_reap_pending(strata_runtime *runtime);

/* Returns free memory to the device until at most keep_bytes stay reserved. `released` may be NULL; it receives bytes,
 * or 0 where the driver does not report them. A pool waits for the work on free memory. fixed and binning do not wait
 * and keep memory that work may still use: call strata_runtime_reap_pending first. */
STRATA_API strata_status strata_runtime_trim(strata_runtime *runtime, size_t keep_bytes, size_t *released);

/* The live block that contains `address`. Errors: FOREIGN_POINTER, UNSUPPORTED. */
STRATA_API strata_status strata_runtime_find(strata_runtime *runtime, CUdeviceptr address, strata_block *out);

/* The state of an identity; FREED for a stale or foreign one. */
STRATA_API strata_block_state strata_runtime_block_state(strata_runtime *runtime, strata_block_id id);

/* ---- uses across streams ---- */

/* Whether the stack orders uses across streams. If not, the functions below answer STREAM_MISUSE. */
STRATA_API bool strata_runtime_supports_block_use_tracking(strata_runtime *runtime);

/* prepare makes `stream` wait for earlier uses that conflict with `access` and pins the block; finish follows the
 * submission of the work, records the use, and unpins. A pinned block cannot be freed, unless another thread frees it
 * while the allocating thread is inside prepare, with nothing to order the two: finish then answers USE_AFTER_FREE. A
 * failed prepare records and pins nothing.
 *
 * Work on a block's own stream needs the pair too, unless no other stream uses or frees the block: unrecorded work is
 * not waited for.
 *
 * finish comes from the same thread, on the same stream, with the same or a weaker access (READ after READ_WRITE if the
 * work only read, NONE if it was not submitted). A finish without a prepare answers STREAM_MISUSE; the other conditions
 * are not checked. A finish on another stream records the use there; one with a stronger access records a write that
 * was not ordered after other streams' reads. Errors: USE_AFTER_FREE, FOREIGN_POINTER, STREAM_CAPTURE, STREAM_MISUSE,
 * OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_runtime_prepare_block_use(strata_runtime *runtime, const strata_block *block,
                                                          CUstream stream, strata_access access);
STRATA_API strata_status strata_runtime_finish_block_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream, strata_access access);

/* As above, for the first use of a fresh block: waits for the allocation alone, and records a write. STREAM_MISUSE if
 * the block was used before. */
STRATA_API strata_status strata_runtime_prepare_first_use(strata_runtime *runtime, const strata_block *block,
                                                          CUstream stream);
STRATA_API strata_status strata_runtime_finish_first_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream);

/* Records work that was submitted to `stream` without a prepare: later uses and the free wait for it. Errors as for
 * prepare. */
STRATA_API strata_status strata_runtime_record_block_use(strata_runtime *runtime, const strata_block *block,
                                                         CUstream stream, strata_access access);

/* ---- streams ---- */

/* Makes a stream of the program known. A stream is registered once. Errors: INVALID_VALUE (registered, or a default
 * stream), STREAM_CAPTURE, WRONG_DEVICE, BUSY (65,534 streams have work or blocks), OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_runtime_register_stream(strata_runtime *runtime, CUstream stream);

/* Unregisters a stream; call it before the stream is destroyed. Work submitted so far is remembered. Other threads may
 * meanwhile finish uses of the stream, and free blocks that were allocated on it with strata_runtime_deallocate. The
 * call waits for such frees in flight: the caller holds no lock that a callback in a free takes, and is in no such
 * callback itself while another thread may be. No other thread may be in a call with this stream as an argument.
 * Errors: INVALID_VALUE (not registered here), DRIVER.
 *
 * A registered stream that was destroyed first cannot be unregistered: the closing event cannot be recorded, and any
 * driver call with the handle is undefined. Its runtime cannot be destroyed either. */
STRATA_API strata_status strata_runtime_unregister_stream(strata_runtime *runtime, CUstream stream);

/* Takes a non-blocking stream from the runtime's pool, and returns it. STREAMS_EXHAUSTED at capacity; streams are never
 * shared. */
STRATA_API strata_status strata_runtime_stream_acquire(strata_runtime *runtime, CUstream *out);
STRATA_API strata_status strata_runtime_stream_release(strata_runtime *runtime, CUstream stream);

/* Waits on the host until all work submitted to `stream` is complete, as cuStreamSynchronize does, and tells Strata so:
 * memory freed there becomes usable by any stream without a driver query, unless recorded uses on other streams are
 * pending. Use it wherever a program waits for a stream anyway, for instance at the end of a server's request. It costs
 * cuStreamSynchronize and two exchanges of the thread's capture mode, which protect other streams' captures; an unknown
 * stream is identified first. On default streams an event is recorded and waited for.
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
