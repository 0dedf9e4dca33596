/* Entry points: a device's graph memory. */
#include "driver/enter.h"

/* Enters a call about a device's graph memory. After a failure the lock is not held. */
static CUresult enter(const char *entry, CUdevice ordinal, sim_graph_pool **pool)
{
    *pool = NULL;
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    sim_device *device = sim_device_of(ordinal);
    *pool = device ? &sim_graph.pools[ordinal] : NULL;
    return device ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    sim_graph_pool *pool;
    CUresult result = enter(__func__, device, &pool);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(value ? sim_graph_memory_get_attribute(pool, attr, value) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    sim_graph_pool *pool;
    CUresult result = enter(__func__, device, &pool);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(value ? sim_graph_memory_set_attribute(pool, attr, *(const cuuint64_t *)value)
                           : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    sim_graph_pool *pool;
    CUresult result = enter(__func__, device, &pool);
    if (result != CUDA_SUCCESS)
        return result;
    sim_order.devices[device].memory->used -= pool->idle;
    pool->reserved -= pool->idle;
    pool->idle = 0;
    return sim_leave(CUDA_SUCCESS);
}
