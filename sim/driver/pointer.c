/* Entry points: what an address is. */
#include "driver/enter.h"

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(data ? sim_pointer_get(ptr, attribute, data) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    bool good = numAttributes > 0 && attributes && data;
    return sim_leave(good ? sim_pointer_get_all(numAttributes, attributes, data, ptr) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    sim_block *block = sim_block_at(ptr);
    if (!value || !block || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    block->sync_memops = *(const int *)value != 0;
    return sim_leave(CUDA_SUCCESS);
}
