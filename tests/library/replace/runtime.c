/* CUDA's runtime functions. */
#include "library/replace/originals.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

int originals_fail;

static cudaError_t last;

static cudaError_t keep(CUresult result)
{
    if (result != CUDA_SUCCESS)
        last = (cudaError_t)result;
    return (cudaError_t)result;
}

static cudaError_t give(CUresult result, CUdeviceptr address, void **out)
{
    *out = (void *)(uintptr_t)address;
    return keep(result);
}

cudaError_t CUDARTAPI cudaMalloc(void **out, size_t bytes)
{
    CUdeviceptr address = 0;
    const CUresult planned = (CUresult)originals_fail;
    originals_fail = 0;
    return planned ? keep(planned) : give(originals_allocate(&address, bytes), address, out);
}

cudaError_t CUDARTAPI cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
    originals.pitched++;
    (void)out;
    (void)pitch;
    (void)width;
    (void)height;
    return keep(CUDA_ERROR_INVALID_VALUE);
}

cudaError_t CUDARTAPI cudaFree(void *memory)
{
    return keep(originals_release((CUdeviceptr)(uintptr_t)memory));
}

cudaError_t CUDARTAPI cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    const CUresult result = originals_allocate_async(&address, bytes, stream);
    return give(result, address, out);
}

cudaError_t CUDARTAPI cudaFreeAsync(void *memory, cudaStream_t stream)
{
    return keep(originals_release_async((CUdeviceptr)(uintptr_t)memory, stream));
}

cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    (void)pool;
    originals.from_pool++;
    return cudaMallocAsync(out, bytes, stream);
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return keep(originals_memory_info(free_bytes, total_bytes));
}

cudaError_t CUDARTAPI cudaPeekAtLastError(void)
{
    originals.last_error++;
    return last;
}

cudaError_t CUDARTAPI cudaGetLastError(void)
{
    const cudaError_t result = cudaPeekAtLastError();
    last = cudaSuccess;
    return result;
}

cudaError_t CUDARTAPI cudaMallocAsync_ptsz(void **out, size_t bytes, cudaStream_t stream);
cudaError_t CUDARTAPI cudaMallocAsync_ptsz(void **out, size_t bytes, cudaStream_t stream)
{
    originals.ptsz++;
    return cudaMallocAsync(out, bytes, stream ? stream : cudaStreamPerThread);
}

cudaError_t CUDARTAPI cudaFreeAsync_ptsz(void *memory, cudaStream_t stream);
cudaError_t CUDARTAPI cudaFreeAsync_ptsz(void *memory, cudaStream_t stream)
{
    originals.ptsz++;
    return cudaFreeAsync(memory, stream ? stream : cudaStreamPerThread);
}
