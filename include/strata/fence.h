/* Fences: whether the work that a program has submitted to a stream is complete. */
#ifndef STRATA_FENCE_H
#define STRATA_FENCE_H

#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Any thread may query or wait while no thread records or destroys. */
typedef struct strata_fence strata_fence;

/* Makes a fence for streams of the runtime's device, behind no work at first. It may outlive the runtime. Errors:
 * OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_fence_create(strata_runtime *runtime, strata_fence **out);

/* Puts the fence behind all work submitted to `stream` so far, and behind nothing else. It can be recorded again at any
 * time. After an error it stays where it was. Errors: STREAM_CAPTURE (the stream is being captured), DRIVER, and those
 * of finding an unknown stream. */
STRATA_API strata_status strata_fence_record(strata_fence *fence, CUstream stream);

/* SUCCESS if the work before the fence is complete, or there is none; else NOT_READY, without an error record. Never
 * waits. What Strata knows of the stream does not change: memory is reused as before. Errors: DRIVER. */
STRATA_API strata_status strata_fence_query(strata_fence *fence);

/* Waits on the host until it is complete. Not in host functions (cuLaunchHostFunc). Errors: DRIVER. */
STRATA_API strata_status strata_fence_synchronize(strata_fence *fence);

/* Destroys the fence, and waits for nothing. NULL is ignored. */
STRATA_API strata_status strata_fence_destroy(strata_fence *fence);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_fence_record(fence, stream) strata_fence_record(fence, strata_stream_as_meant(stream))
#endif

#ifdef __cplusplus
}
#endif

#endif
