/* Linkage, the versioning of option structs, and the meaning of stream 0.
 *
 * Option structs are zero by default and begin with `size`: sizeof the struct as the caller was compiled, or 0 for the
 * current version. Members that a smaller struct of an older version lacks count as zero. A larger struct of a later
 * version must be zero beyond the members that this version knows. Other sizes are INVALID_VALUE. */
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
 * stream parameter translates the stream with this function. */
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
