/* Activation of capture pools: their driver pool takes the place of the device's current one. */
#include "runtime/capture_mempool.h"

#include "core/base/error.h"

static strata_lock active_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_ACTIVE_POOL);

/* The process's active pool, which is held; NULL: none. Guarded by active_lock. */
static struct {
    strata_capture_pool *pool;
    CUmemoryPool before; /* the device's current pool until then */
} active;

/* The log callback is the program's: errors are suppressed while the lock is held. */
static void lock(void)
{
    strata_error_suppress_begin();
    strata_lock_take(&active_lock);
}

/* Releases the lock, and then raises the error of `status`. */
static void unlock(strata_status status)
{
    strata_lock_release(&active_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
}

/* Enters a scope in relaxed mode: otherwise these calls would spoil captures. */
static strata_status enter(const strata_capture_pool *pool, strata_call_scope *scope)
{
    return strata_call_scope_enter(scope, pool->runtime->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
}

/* ---- the driver's pool ---- */

strata_status strata_capture_mempool_destroy(strata_capture_pool *pool)
{
    strata_call_scope scope;
    if (!pool->mempool || !strata_device_is_usable(pool->runtime->device))
        return STRATA_SUCCESS;
    const strata_status status = enter(pool, &scope);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.MemPoolDestroy(pool->mempool);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemPoolDestroy", "destroying the driver's pool of capture pool \"%s\"",
                                  strata_tag_name(strata_capture_pool_tag(pool)));
    pool->mempool = NULL;
    return STRATA_SUCCESS;
}

/* Creates the driver's pool, once. Its free memory stays with it. */
static strata_status make_mempool(strata_capture_pool *pool)
{
    const strata_device *device = pool->runtime->device;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal}};
    cuuint64_t threshold = UINT64_MAX;
    if (pool->mempool)
        return STRATA_SUCCESS;
    CUresult result = strata_cu.MemPoolCreate(&pool->mempool, &properties);
    if (result != CUDA_SUCCESS) {
        pool->mempool = NULL;
        return strata_fail_driver(result, "cuMemPoolCreate", "making a pool on device %d", device->ordinal);
    }
    result = strata_cu.MemPoolSetAttribute(pool->mempool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    const strata_status status =
        strata_fail_driver(result, "cuMemPoolSetAttribute", "setting the release threshold of a pool");
    strata_cu.MemPoolDestroy(pool->mempool);
    pool->mempool = NULL;
    return status;
}

/* ---- activation ---- */

static strata_status check(const strata_capture_pool *pool, const char *call)
{
    if (!pool)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: pool is NULL", call);
    const strata_status status = strata_check_runtime_now(pool->runtime);
    if (status != STRATA_SUCCESS)
        return status;
    if (!strata_cu.MemPoolCreate || !strata_cu.MemPoolDestroy || !strata_cu.MemPoolSetAttribute ||
        !strata_cu.DeviceGetMemPool || !strata_cu.DeviceSetMemPool || !pool->runtime->device->info.memory_pools)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "%s: the device has no stream-ordered pools", call);
    return STRATA_SUCCESS;
}

/* Makes the driver's pool the device's current one. The lock is held. */
static strata_status activate(strata_capture_pool *pool)
{
    const CUdevice device = pool->runtime->device->handle;
    CUmemoryPool before = NULL;
    strata_call_scope scope;
    strata_status status = enter(pool, &scope);
    if (status != STRATA_SUCCESS)
        return status;
    status = make_mempool(pool);
    if (status != STRATA_SUCCESS) {
        strata_call_scope_leave(&scope);
        return status;
    }
    const char *call = "cuDeviceGetMemPool";
    CUresult result = strata_cu.DeviceGetMemPool(&before, device);
    if (result == CUDA_SUCCESS) {
        call = "cuDeviceSetMemPool";
        result = strata_cu.DeviceSetMemPool(device, pool->mempool);
    }
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, call, "activating capture pool \"%s\"",
                                  strata_tag_name(strata_capture_pool_tag(pool)));
    active.pool = pool;
    active.before = before;
    return STRATA_SUCCESS;
}

/* Makes the earlier pool current again. A pool that other code has made current meanwhile stays. The earlier one may be
 * gone: then the device's default one takes its place. The lock is held. */
static strata_status restore(const strata_capture_pool *pool)
{
    const CUdevice device = pool->runtime->device->handle;
    CUmemoryPool now = NULL, usual = NULL;
    strata_call_scope scope;
    const strata_status status = enter(pool, &scope);
    if (status != STRATA_SUCCESS)
        return status;
    const char *call = "cuDeviceGetMemPool";
    CUresult result = strata_cu.DeviceGetMemPool(&now, device);
    if (result == CUDA_SUCCESS && now == pool->mempool) {
        call = "cuDeviceSetMemPool";
        result = strata_cu.DeviceSetMemPool(device, active.before);
        if (result == CUDA_ERROR_INVALID_VALUE && strata_cu.DeviceGetDefaultMemPool &&
            strata_cu.DeviceGetDefaultMemPool(&usual, device) == CUDA_SUCCESS)
            result = strata_cu.DeviceSetMemPool(device, usual);
    }
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, call, "restoring the current pool of device %d",
                                                       pool->runtime->device->ordinal);
}

strata_status strata_capture_pool_activate(strata_capture_pool *pool)
{
    strata_status status = check(pool, "strata_capture_pool_activate");
    if (status == STRATA_SUCCESS)
        status = strata_capture_pool_check(pool);
    if (status != STRATA_SUCCESS)
        return status;
    lock();
    status = active.pool
                 ? strata_fail(STRATA_ERROR_BUSY,
                               "strata_capture_pool_activate: capture pool \"%s\" is active; deactivate it first",
                               strata_tag_name(strata_capture_pool_tag(active.pool)))
                 : activate(pool);
    if (status == STRATA_SUCCESS)
        strata_capture_pool_hold(pool);
    unlock(status);
    return status;
}

strata_status strata_capture_pool_deactivate(strata_capture_pool *pool)
{
    if (!pool)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_pool_deactivate: pool is NULL");
    strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    lock();
    if (active.pool != pool)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_pool_deactivate: the pool is not active");
    else if (strata_device_is_usable(pool->runtime->device))
        status = restore(pool);
    if (status == STRATA_SUCCESS)
        active.pool = NULL;
    unlock(status);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin(); /* it is over: what cannot be ended now is tried again by other calls */
    strata_capture_pool_unhold(pool);
    strata_error_suppress_end(false);
    return STRATA_SUCCESS;
}
