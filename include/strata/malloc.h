/* Device memory for code that has no stream: strata_malloc and strata_free stand in for cudaMalloc and cudaFree.
 *
 * Code that knows its streams is faster with strata_runtime_allocate (runtime.h). <strata/replace_cuda_runtime.h> and
 * <strata/replace_cuda_driver.h> replace the calls of a source file; docs/replace.md.
 *
 * After the driver has shut down, and for memory of a device that was reset, frees succeed without effect; memory that
 * the driver has given out since at the same address is not Strata's. In host functions (cuLaunchHostFunc) none of
 * these calls is allowed: they call the driver. */
#ifndef STRATA_MALLOC_H
#define STRATA_MALLOC_H

#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `bytes`, aligned as by cudaMalloc, that work on any stream may use at once, from the runtime of the current
 * context's device (strata_runtime_get). A thread without a context gets device 0 and its primary context, as in the
 * CUDA runtime. The call waits for earlier work on the memory that it returns, and for no other work. The memory has
 * the thread's tag (strata_tag_enter, block.h). 0 bytes give NULL. On failure *out is NULL. Errors: UNSUPPORTED (the
 * context is not its device's primary one; the stack cannot find a block by its address), and those of
 * strata_runtime_get and strata_runtime_allocate. */
STRATA_API strata_status strata_malloc(void **out, size_t bytes);

/* Frees the block that begins at `address`, of strata_malloc or any runtime of the process, whichever streams use it:
 * first waits for all work submitted to its device's primary context, as cudaFree does. Captures of streams go on. If
 * the driver refuses the wait for a capture, the free succeeds and is done by a later call of this header, or
 * the end of the runtime; the memory counts as live until then. NULL is ignored. Errors leave the block live:
 * FOREIGN_POINTER (no live block begins there: memory of another library, an address inside of a block, a second free),
 * BLOCK_IN_USE, DRIVER. */
STRATA_API strata_status strata_free(void *address);

/* As strata_free, without the wait: work on `stream` so far, and recorded uses, may still use the memory. For all other
 * streams the caller has ordered `stream` after their work. A default stream is the current context's, which is waited
 * for on the host if that is not the context of the memory's device. Errors: as strata_runtime_deallocate_on,
 * FOREIGN_POINTER. */
STRATA_API strata_status strata_free_on(void *address, CUstream stream);

/* Allocates `bytes` for work on `stream`, from the process's runtime of the stream's device, which for default streams
 * is strata_malloc's: cudaMallocAsync without a block. strata_free and strata_free_on free it. Errors: as
 * strata_malloc, STREAM_CAPTURE. */
STRATA_API strata_status strata_malloc_on(void **out, size_t bytes, CUstream stream);

/* Whether the driver would free memory of Strata's at `address`: a live block of this process contains it, one whose
 * free waits for a capture's end, or a chunk that a layer took from the driver and cuts into blocks. False in a forked
 * child, and true for any address after the driver's shutdown, when frees have no effect. Raises no error: for code
 * that frees other memory elsewhere. */
STRATA_API bool strata_holds(const void *address);

/* What cudaMemGetInfo would say if the device were as large as the stack's nearest budget, for the current context's
 * device: *total is the smaller of the two; *free is what is left of the budget, but not more than what the device and
 * the stack have free, of which frees that the driver calls complete are part. Either may be NULL. Errors: DRIVER, and
 * of strata_malloc. */
STRATA_API strata_status strata_memory_info(size_t *free_bytes, size_t *total_bytes);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_malloc_on(out, bytes, stream) strata_malloc_on(out, bytes, strata_stream_as_meant(stream))
#define strata_free_on(address, stream)      strata_free_on(address, strata_stream_as_meant(stream))
#endif

#ifdef __cplusplus
}
#endif

#endif
