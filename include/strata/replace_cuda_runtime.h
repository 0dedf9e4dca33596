/* Replaces the CUDA runtime's allocation calls of one source file by Strata's. Include it last, behind all headers that
 * call CUDA; it includes <cuda_runtime.h> itself. C11, C++11, host code of nvcc. docs/replace.md.
 *
 *     cudaMalloc, cudaFree              strata_malloc, strata_free
 *     cudaMallocAsync, cudaFreeAsync    strata_malloc_on, strata_free_on; with CUDA's meaning of stream 0
 *     cudaMallocPitch                   strata_malloc, with rows of a multiple of 512 bytes, as in CUDA
 *     cudaMemGetInfo                    strata_memory_info
 *     cudaGetLastError, cudaPeekAtLastError    also know what the calls above answered in this file
 *
 * Memory that Strata does not hold goes to CUDA's own function: of other files, of cudaMallocManaged, of
 * cudaMallocFromPoolAsync, of a capture that other code began, in which cudaMallocAsync makes a node of the graph.
 * cudaFree(NULL) goes there too, since programs call it to begin. A file that frees Strata's memory must include this
 * header, too: CUDA's cudaFree does not know the addresses. */
#ifndef STRATA_REPLACE_CUDA_RUNTIME_H
#define STRATA_REPLACE_CUDA_RUNTIME_H

#include <cuda_runtime.h>
#include <strata/malloc.h>

/* The last error of the replaced calls in this file, for each thread: CUDA does not know of it. */
static inline cudaError_t *strata_replaced_error(void)
{
#ifdef __cplusplus
    static thread_local cudaError_t error = cudaSuccess;
#else
    static _Thread_local cudaError_t error = cudaSuccess;
#endif
    return &error;
}

static inline cudaError_t strata_replaced_result(strata_status status)
{
    const cudaError_t result = (cudaError_t)strata_status_to_cudart(status);
    if (result != cudaSuccess)
        *strata_replaced_error() = result;
    return result;
}

static inline cudaError_t strata_replaced_cudaMalloc(void **address, size_t bytes)
{
    return strata_replaced_result(strata_malloc(address, bytes));
}

static inline cudaError_t strata_replaced_cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height)
{
    const size_t rows = (width + 511) & ~(size_t)511;
    if (!address || !pitch || !width || !height || rows < width || height > SIZE_MAX / rows)
        return cudaMallocPitch(address, pitch, width, height);
    const strata_status status = strata_malloc(address, rows * height);
    if (status == STRATA_SUCCESS)
        *pitch = rows;
    return strata_replaced_result(status);
}

static inline cudaError_t strata_replaced_cudaFree(void *address)
{
    return strata_holds(address) ? strata_replaced_result(strata_free(address)) : cudaFree(address);
}

static inline cudaError_t strata_replaced_cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream)
{
    const strata_status status = strata_malloc_on(address, bytes, stream);
    if (status == STRATA_ERROR_STREAM_CAPTURE)
        return cudaMallocAsync(address, bytes, stream);
    return strata_replaced_result(status);
}

static inline cudaError_t strata_replaced_cudaFreeAsync(void *address, cudaStream_t stream)
{
    return strata_holds(address) ? strata_replaced_result(strata_free_on(address, stream))
                                 : cudaFreeAsync(address, stream);
}

static inline cudaError_t strata_replaced_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return strata_replaced_result(strata_memory_info(free_bytes, total_bytes));
}

static inline cudaError_t strata_replaced_cudaPeekAtLastError(void)
{
    const cudaError_t result = cudaPeekAtLastError();
    return result != cudaSuccess ? result : *strata_replaced_error();
}

static inline cudaError_t strata_replaced_cudaGetLastError(void)
{
    const cudaError_t result = cudaGetLastError(), replaced = *strata_replaced_error();
    *strata_replaced_error() = cudaSuccess;
    return result != cudaSuccess ? result : replaced;
}

#ifdef __cplusplus
/* The overloads of cuda_runtime.h, which also take pointers to const and volatile. */
template <class T> static inline void **strata_replaced_out(T **address)
{
    return static_cast<void **>(static_cast<void *>(address));
}

template <class T> static inline cudaError_t strata_replaced_cudaMalloc(T **address, size_t bytes)
{
    return strata_replaced_cudaMalloc(strata_replaced_out(address), bytes);
}

template <class T>
static inline cudaError_t strata_replaced_cudaMallocPitch(T **address, size_t *pitch, size_t width, size_t height)
{
    return strata_replaced_cudaMallocPitch(strata_replaced_out(address), pitch, width, height);
}

template <class T>
static inline cudaError_t strata_replaced_cudaMallocAsync(T **address, size_t bytes, cudaStream_t stream)
{
    return strata_replaced_cudaMallocAsync(strata_replaced_out(address), bytes, stream);
}

template <class T>
static inline cudaError_t strata_replaced_cudaMallocAsync(T **address, size_t bytes, cudaMemPool_t pool,
                                                          cudaStream_t stream)
{
    return cudaMallocFromPoolAsync(strata_replaced_out(address), bytes, pool, stream);
}
#endif

/* With per-thread default streams some names are macros of cuda_runtime_api.h. */
#undef cudaMallocAsync
#undef cudaFreeAsync
#define cudaMalloc          strata_replaced_cudaMalloc
#define cudaMallocPitch     strata_replaced_cudaMallocPitch
#define cudaFree            strata_replaced_cudaFree
#define cudaMallocAsync     strata_replaced_cudaMallocAsync
#define cudaFreeAsync       strata_replaced_cudaFreeAsync
#define cudaMemGetInfo      strata_replaced_cudaMemGetInfo
#define cudaGetLastError    strata_replaced_cudaGetLastError
#define cudaPeekAtLastError strata_replaced_cudaPeekAtLastError

#endif
