/* Entry points: virtual memory management. */
#include "driver/enter.h"

static const uint64_t most_range = UINT64_C(1) << 46;

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_map_memory(ptr, size, offset, handle, flags));
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_map_unmap(ptr, size));
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_map_set_access(ptr, size, desc, count));
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_map_get_access(flags, location, ptr));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    CUresult result = sim_enter_virtual_memory();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_physical_create(handle, size, prop, flags));
}

/* A handle released as often as it was given out is invalid, even while its memory is mapped. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_physical *physical = sim_physical_of(handle);
    if (!physical)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    physical->handles--;
    sim_physical_unused(physical);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const sim_map *map = sim_map_at((uint64_t)(uintptr_t)addr);
    if (!handle || !map)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    map->physical->handles++;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)map->physical;
    return sim_leave(CUDA_SUCCESS);
}

/* One answer for all memory: properties are ignored, as in the driver. */
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    CUresult result = sim_enter_virtual_memory();
    if (result != CUDA_SUCCESS)
        return result;
    bool known = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    if (!granularity || !prop || !known)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *granularity = SIM_PAGE;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const sim_physical *physical = sim_physical_of(handle);
    if (!prop || !physical)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *prop = physical->properties;
    return sim_leave(CUDA_SUCCESS);
}

CUresult sim_enter_virtual_memory_as(const char *entry)
{
    CUresult result = sim_enter_as(entry);
    return result == CUDA_SUCCESS && sim.settings.lacks_virtual_memory ? sim_leave(CUDA_ERROR_NOT_SUPPORTED) : result;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    CUresult result = sim_enter_virtual_memory();
    if (result != CUDA_SUCCESS)
        return result;
    bool aligned = (alignment & (alignment - 1)) == 0 && alignment <= most_range;
    if (!ptr || size == 0 || size % SIM_PAGE != 0 || !aligned || addr % SIM_PAGE != 0 || flags != 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    return sim_leave(size > most_range ? CUDA_ERROR_OUT_OF_MEMORY : sim_range_reserve(ptr, size, alignment, addr));
}

/* Only a whole reservation with nothing mapped can be freed. */
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_range *range = sim_range_at(ptr);
    if (!range || range->address != ptr || range->bytes != size || range->maps > 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_range_destroy(range);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_share_export(shareableHandle, handle, handleType, flags));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    switch (shHandleType) {
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
        return sim_leave(sim_share_import(handle, (int)(intptr_t)osHandle));
    case CU_MEM_HANDLE_TYPE_WIN32:
    case CU_MEM_HANDLE_TYPE_WIN32_KMT:
    case CU_MEM_HANDLE_TYPE_FABRIC:
        return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
    default:
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    }
}
