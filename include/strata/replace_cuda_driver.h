/* Replaces the CUDA driver's allocation calls of one source file by Strata's. Include it last, behind all headers that
 * call CUDA; it includes <cuda.h> itself. C and C++11. docs/replace.md.
 *
 *     cuMemAlloc, cuMemFree              strata_malloc, strata_free
 *     cuMemAllocAsync, cuMemFreeAsync    strata_malloc_on, strata_free_on; with CUDA's meaning of stream 0
 *     cuMemAllocPitch                    strata_malloc, with rows of a multiple of 512 bytes
 *     cuMemGetInfo                       strata_memory_info
 *     cuMemGetAddressRange               the block that contains the address
 *
 * Memory that Strata does not hold goes to the driver's own function: of other files, of cuMemAllocManaged, of
 * cuMemAllocFromPoolAsync, of a capture that other code began, in which cuMemAllocAsync makes a node of the graph. A
 * file that frees Strata's memory must include this header, too: the driver's cuMemFree does not know the addresses.
 * Strata works in the primary context: in another one the allocations answer CUDA_ERROR_NOT_SUPPORTED. */
#ifndef STRATA_REPLACE_CUDA_DRIVER_H
#define STRATA_REPLACE_CUDA_DRIVER_H

#include <cuda.h>
#include <strata/malloc.h>

/* CUDA's numbers are addresses of the host's width. */
static inline void *strata_replaced_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static inline CUresult strata_replaced_allocated(strata_status status, void *memory, CUdeviceptr *address)
{
    if (status == STRATA_SUCCESS)
        *address = (CUdeviceptr)(uintptr_t)memory;
    return strata_status_to_cuda(status);
}

static inline CUresult strata_replaced_cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    void *memory = NULL;
    if (!address || !bytes) /* the driver's answer */
        return CUDA_ERROR_INVALID_VALUE;
    const strata_status status = strata_malloc(&memory, bytes);
    return strata_replaced_allocated(status, memory, address);
}

static inline CUresult strata_replaced_cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                                       unsigned int element)
{
    void *memory = NULL;
    const size_t rows = (width + 511) & ~(size_t)511;
    if (!address || !pitch || !width || !height || rows < width || height > SIZE_MAX / rows ||
        (element != 4 && element != 8 && element != 16))
        return cuMemAllocPitch(address, pitch, width, height, element);
    const strata_status status = strata_malloc(&memory, rows * height);
    if (status == STRATA_SUCCESS)
        *pitch = rows;
    return strata_replaced_allocated(status, memory, address);
}

static inline CUresult strata_replaced_cuMemFree(CUdeviceptr address)
{
    void *memory = strata_replaced_pointer(address);
    return strata_holds(memory) ? strata_status_to_cuda(strata_free(memory)) : cuMemFree(address);
}

static inline CUresult strata_replaced_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    void *memory = NULL;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    const strata_status status = strata_malloc_on(&memory, bytes, stream);
    if (status == STRATA_ERROR_STREAM_CAPTURE)
        return cuMemAllocAsync(address, bytes, stream);
    return strata_replaced_allocated(status, memory, address);
}

static inline CUresult strata_replaced_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    void *memory = strata_replaced_pointer(address);
    return strata_holds(memory) ? strata_status_to_cuda(strata_free_on(memory, stream))
                                : cuMemFreeAsync(address, stream);
}

static inline CUresult strata_replaced_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return strata_status_to_cuda(strata_memory_info(free_bytes, total_bytes));
}

static inline CUresult strata_replaced_cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    strata_runtime *runtime;
    strata_block block;
    if (!strata_holds(strata_replaced_pointer(address)))
        return cuMemGetAddressRange(base, bytes, address);
    strata_status status = strata_runtime_of_address(address, &runtime);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_find(runtime, address, &block);
    if (status == STRATA_ERROR_FOREIGN_POINTER ||
        (status == STRATA_SUCCESS && address - block.address >= block.requested))
        return CUDA_ERROR_NOT_FOUND; /* a freed block's, or behind the bytes that were asked for */
    if (status != STRATA_SUCCESS)
        return strata_status_to_cuda(status);
    if (base)
        *base = block.address;
    if (bytes)
        *bytes = block.requested;
    return CUDA_SUCCESS;
}

/* The names are macros of cuda.h. */
#undef cuMemAlloc
#undef cuMemAllocPitch
#undef cuMemFree
#undef cuMemAllocAsync
#undef cuMemFreeAsync
#undef cuMemGetInfo
#undef cuMemGetAddressRange
#define cuMemAlloc              strata_replaced_cuMemAlloc
#define cuMemAlloc_v2           strata_replaced_cuMemAlloc
#define cuMemAllocPitch         strata_replaced_cuMemAllocPitch
#define cuMemAllocPitch_v2      strata_replaced_cuMemAllocPitch
#define cuMemFree               strata_replaced_cuMemFree
#define cuMemFree_v2            strata_replaced_cuMemFree
#define cuMemAllocAsync         strata_replaced_cuMemAllocAsync
#define cuMemFreeAsync          strata_replaced_cuMemFreeAsync
#define cuMemGetInfo            strata_replaced_cuMemGetInfo
#define cuMemGetInfo_v2         strata_replaced_cuMemGetInfo
#define cuMemGetAddressRange    strata_replaced_cuMemGetAddressRange
#define cuMemGetAddressRange_v2 strata_replaced_cuMemGetAddressRange

#endif
