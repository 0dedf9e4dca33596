/* Entry points: managed memory. */
#include "driver/enter.h"

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_managed_allocate(context, dptr, bytesize, flags));
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_managed_prefetch(devPtr, count, &location, flags, hStream));
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    return cuMemPrefetchAsync_v2(devPtr, count, sim_managed_location_of(dstDevice), 0, hStream);
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    size_t first;
    size_t last;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_managed_memory *managed = sim_managed_find(devPtr, count, &first, &last);
    if (!managed || !sim_managed_location_good(advice, &location))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = first; i <= last; i++)
        sim_managed_advise(&managed->pages[i], advice, &location);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    return cuMemAdvise_v2(devPtr, count, advice, sim_managed_location_of(device));
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                size_t count)
{
    size_t first;
    size_t last;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const sim_managed_memory *managed = sim_managed_find(devPtr, count, &first, &last);
    if (!data || !managed)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_managed_page common = sim_managed_common_of(managed->pages, first, last);
    return sim_leave(sim_managed_describe(&common, attribute, data, dataSize));
}
