/* Entry points: mempools and stream-ordered memory. */
#include "driver/enter.h"

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_pool_allocate(dptr, bytesize, NULL, hStream));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    return sim_leave(sim_pool_allocate(dptr, bytesize, pool, hStream));
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_pool_free(dptr, hStream));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || !poolProps || !sim_pool_properties_good(poolProps))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_device *device = sim_device_of(poolProps->location.id);
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    CUmemoryPool made = poolProps->maxSize <= SIM_MOST_MEMORY ? sim_pool_create(device) : NULL;
    if (!made)
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    made->space.limit = sim_round_up(poolProps->maxSize, SIM_CHUNK);
    made->handle_types = poolProps->handleTypes;
    *pool = made;
    return sim_leave(CUDA_SUCCESS);
}

/* Without its handle, the pool lives until its last memory is freed. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pool_valid(pool) || pool->is_default)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < sim.settings.devices; i++)
        if (sim_order.devices[i].memory->current_pool == pool)
            sim_order.devices[i].memory->current_pool = sim_order.devices[i].memory->default_pool;
    pool->destroyed = true;
    if (pool->blocks == 0)
        sim_pool_destroy(pool);
    return sim_leave(CUDA_SUCCESS);
}

/* Rounded up to whole chunks, which wraps the greatest sizes to 0, as in the real driver. What the host has not seen to
 * be free stays (docs/measurements.md). */
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pool_valid(pool))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_space_shrink(&pool->space, sim_round_up(minBytesToKeep, SIM_CHUNK));
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_pool_valid(pool) && value ? sim_pool_set_attribute(pool, attr, value)
                                                   : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_pool_valid(pool) && value ? sim_pool_get_attribute(pool, attr, value)
                                                   : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pool_valid(pool) || !map)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        result = sim_pool_check_access(pool, &map[i]);
        if (result != CUDA_SUCCESS)
            return sim_leave(result);
    }
    for (size_t i = 0; i < count; i++)
        pool->access[map[i].location.id] = map[i].flags;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags || !location || !sim_pool_valid(memPool) || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!sim_device_of(location->id))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = memPool->access[location->id];
    return sim_leave(CUDA_SUCCESS);
}

/* The two calls have different errors for a missing device. */
static CUresult give_pool(const char *entry, CUmemoryPool *pool, CUdevice dev, bool current)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    const sim_device *device = sim_device_of(dev);
    if (!device)
        return sim_leave(current ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE);
    if (!pool)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *pool = current ? device->memory->current_pool : device->memory->default_pool;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    return give_pool(__func__, pool_out, dev, false);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    return give_pool(__func__, pool, dev, true);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    sim_device *device = sim_device_of(dev);
    if (!device || !sim_pool_valid(pool) || pool->space.device != device)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    device->memory->current_pool = pool;
    return sim_leave(CUDA_SUCCESS);
}
