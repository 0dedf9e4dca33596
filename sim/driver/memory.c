/* Entry points: cuMemAlloc, pinned and registered memory. */
#include "driver/enter.h"
#include <stdlib.h>

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_memory_allocate(context, dptr, bytesize));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
    if (!pPitch || !element || WidthInBytes == 0 || Height == 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (WidthInBytes > SIM_MOST_MEMORY || Height > SIM_MOST_MEMORY / sim_round_up(WidthInBytes, SIM_GRANULE))
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    size_t pitch = (size_t)sim_round_up(WidthInBytes, SIM_GRANULE);
    result = sim_memory_allocate(context, dptr, pitch * Height);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return sim_leave(result);
}

/* That the current context has ended is an error before any other. */
static CUresult free_memory(uint64_t address, bool host)
{
    return sim_context_has_ended() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : sim_memory_free(address, host);
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(dptr == 0 ? CUDA_SUCCESS : free_memory(dptr, false));
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (total)
        *total = context->device->memory->bytes;
    if (free)
        *free = context->device->memory->bytes - context->device->memory->used;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const sim_block *block = sim_block_at(dptr);
    if (!block)
        return sim_leave(CUDA_ERROR_NOT_FOUND);
    if (pbase)
        *pbase = block->address;
    if (psize)
        *psize = block->bytes;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_memory_allocate_pinned(context, pp, bytesize, Flags));
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    sim_called_as(__func__);
    return cuMemHostAlloc(pp, bytesize, 0);
}

/* The form of CUDA 2.0. */
CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
    sim_called_as(__func__);
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void *p)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(p ? free_memory((uint64_t)(uintptr_t)p, true) : CUDA_SUCCESS);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pdptr || Flags != 0 || !sim_memory_pinned_at(p))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *pdptr = (uint64_t)(uintptr_t)p;
    return sim_leave(CUDA_SUCCESS);
}

/* Under unified addressing all pinned allocations are mapped, and the flags say so. */
CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const sim_block *block = sim_memory_pinned_at(p);
    if (!pFlags || !block)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *pFlags = block->host_flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_memory_register(context, (uint64_t)(uintptr_t)p, bytesize, Flags));
}

/* The form of CUDA 4.0. */
CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    sim_called_as(__func__);
    return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_memory_unregister((uint64_t)(uintptr_t)p));
}
