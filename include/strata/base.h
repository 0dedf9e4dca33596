/* Linkage, option structs, the meaning of stream 0, and rules of all functions.
 *
 * Unless its comment says otherwise, a function may be called on any thread and by several at once. Beyond the errors
 * listed, a call may answer INVALID_VALUE (an argument that is NULL or out of range), FORKED (in a forked child) or
 * SHUT_DOWN (the driver has shut down: exit handlers), or DEVICE_RESET (the device's primary context was reset).
 *
 * Option structs are zero by default and begin with `size`: sizeof as the caller was compiled, or 0 for the current
 * version. Members that a smaller struct lacks count as zero. A larger struct must be zero beyond the members that this
 * version knows. Other sizes are INVALID_VALUE. */
#ifndef STRATA_BASE_H
#define STRATA_BASE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define STRATA_API                     __attribute__((visibility("default")))
#define STRATA_PRINTF(position, first) __attribute__((format(printf, position, first), cold))
#else
#define STRATA_API
#define STRATA_PRINTF(position, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Stream 0 is the legacy default stream, or the calling thread's default stream in a program built with
 * CUDA_API_PER_THREAD_DEFAULT_STREAM (CUDA Driver API, "Stream synchronization behavior"). Every public function with a
 * stream parameter translates it with this function. */
static inline CUstream strata_stream_as_meant(CUstream stream)
{
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(CUDA_FORCE_API_PER_THREAD_DEFAULT_STREAM)
    return stream ? stream : CU_STREAM_PER_THREAD;
#else
    return stream;
#endif
}

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(CUDA_FORCE_API_PER_THREAD_DEFAULT_STREAM)
#define STRATA_PER_THREAD_STREAMS 1
#endif

#ifdef __cplusplus
}
#endif

#endif
