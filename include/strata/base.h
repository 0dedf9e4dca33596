/* What every public header of Strata stands on: linkage, and what stream 0 means to the including program.
 *
 * Structs of options are all zero by default and start with `size`: sizeof the struct as the caller was compiled, or 0
 * for the version at hand. From a smaller struct, of an older version, the members that it does not have count as zero;
 * a larger one, of a later version, must be zero beyond what this version knows. Any other size is an INVALID_VALUE. */
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

/* Stream 0 is the legacy default stream, or the calling thread's own default stream in a program that is built with
 * CUDA_API_PER_THREAD_DEFAULT_STREAM (CUDA Driver API, "Stream synchronization behavior"). The library is told which
 * one was meant: every function below that takes a stream passes it through this translation. */
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
