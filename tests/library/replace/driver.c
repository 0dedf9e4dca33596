/* CUDA's driver functions. */
#include "library/replace/originals.h"

#include "support/captures.h"

originals_calls originals;

CUresult originals_allocate(CUdeviceptr *address, size_t bytes)
{
    originals.allocate++;
    return test_cu()->MemAlloc(address, bytes);
}

CUresult originals_release(CUdeviceptr address)
{
    originals.release++;
    return test_cu()->MemFree(address);
}

CUresult originals_allocate_async(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    CUresult (*allocate)(CUdeviceptr *, size_t, CUstream);
    test_find_driver_call("cuMemAllocAsync", 11020, &allocate);
    originals.allocate_async++;
    return allocate(address, bytes, stream);
}

CUresult originals_release_async(CUdeviceptr address, CUstream stream)
{
    originals.release_async++;
    return test_cu()->MemFreeAsync(address, stream);
}

CUresult originals_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    originals.memory_info++;
    return test_cu()->MemGetInfo(free_bytes, total_bytes);
}

/* The names are macros of cuda.h. */
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    return originals_allocate(address, bytes);
}

CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    originals.pitched++;
    (void)address;
    (void)pitch;
    (void)width;
    (void)height;
    (void)element;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
    return originals_release(address);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return originals_allocate_async(address, bytes, stream);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return originals_release_async(address, stream);
}

CUresult CUDAAPI cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return originals_memory_info(free_bytes, total_bytes);
}

/* Only its calls are of interest. */
CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    originals.range++;
    (void)base;
    (void)bytes;
    (void)address;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    originals.ptsz++;
    return originals_allocate_async(address, bytes, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    originals.ptsz++;
    return originals_release_async(address, stream ? stream : CU_STREAM_PER_THREAD);
}
