/* The driver's pools. A device's default pool is, for the program, its stack: stream-ordered memory comes from there as
 * long as the program sets no pool of its own. */
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

enum { NO_DEVICE = -1 };

/* A pool that the program has made. */
typedef struct known_pool {
    CUmemoryPool handle;
    int ordinal; /* of its device; NO_DEVICE: memory of the host */
    UT_hash_handle hh;
} known_pool;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* no other lock is taken inside of it */
static known_pool *pools;                                /* guarded by the lock */

static _Atomic(CUmemoryPool) own_pools[EXEC_DEVICES]; /* set by the program for the device; NULL: none; any thread */

bool exec_has_own_pool(int ordinal)
{
    return atomic_load_explicit(&own_pools[ordinal], memory_order_acquire) != NULL;
}

bool exec_pool_is_default(int ordinal, CUmemoryPool pool)
{
    CUmemoryPool standard = NULL;
    return strata_cu.DeviceGetDefaultMemPool && strata_cu.DeviceGetDefaultMemPool(&standard, ordinal) == CUDA_SUCCESS &&
           standard == pool;
}

/* ---- the current pool ---- */

static CUresult pool_set(CUresult result, int ordinal, CUmemoryPool pool)
{
    if (result == CUDA_SUCCESS && ordinal >= 0 && ordinal < EXEC_DEVICES && exec_open_driver())
        atomic_store(&own_pools[ordinal], exec_pool_is_default(ordinal, pool) ? NULL : pool);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
    return pool_set(EXEC_CALL(cuDeviceSetMemPool, ordinal, pool), ordinal, pool);
}

/* Pools of the host and of managed memory are the driver's alone. */
EXEC_EXPORT CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    const CUresult result = EXEC_CALL(cuMemSetMemPool, location, type, pool);
    const bool of_device =
        location && location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
    return of_device ? pool_set(result, location->id, pool) : result;
}

/* ---- pools of the program's ---- */

/* NULL: the pool is not known. */
static known_pool *take_out(CUmemoryPool handle)
{
    known_pool *pool = NULL;
    if (exec_is_forked())
        return NULL;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, pools, &handle, sizeof handle, pool);
    if (pool)
        HASH_DEL(pools, pool);
    pthread_mutex_unlock(&lock);
    return pool;
}

/* Without host memory the pool is not known, and its memory is charged to the stream's device. */
static void enter(known_pool *pool)
{
    pthread_mutex_lock(&lock);
    HASH_ADD(hh, pools, handle, sizeof pool->handle, pool);
    const bool added = pool->hh.tbl != NULL;
    pthread_mutex_unlock(&lock);
    if (!added)
        strata_host_free(pool);
}

static void remember(CUmemoryPool handle, const CUmemPoolProps *properties)
{
    strata_host_free(take_out(handle)); /* of a pool whose end was not seen */
    known_pool *pool = strata_host_zalloc(sizeof *pool);
    if (!pool)
        return;
    pool->handle = handle;
    pool->ordinal = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties->location.id : NO_DEVICE;
    enter(pool);
}

EXEC_EXPORT CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties)
{
    const CUresult result = EXEC_CALL(cuMemPoolCreate, out, properties);
    if (result == CUDA_SUCCESS && out && properties)
        remember(*out, properties);
    return result;
}

/* A pool that ends is no device's any more, of which the default one serves again. Returns the devices as bits. */
static uint64_t unset(CUmemoryPool handle)
{
    _Static_assert(EXEC_DEVICES <= 64, "a bit for each");
    uint64_t devices = 0;
    for (int i = 0; handle && i < EXEC_DEVICES; i++) {
        CUmemoryPool set = handle;
        if (atomic_compare_exchange_strong(&own_pools[i], &set, NULL))
            devices |= UINT64_C(1) << i;
    }
    return devices;
}

static bool driver_has_another(int ordinal, CUmemoryPool pool)
{
    CUmemoryPool now = NULL;
    return strata_cu.DeviceGetMemPool && strata_cu.DeviceGetMemPool(&now, ordinal) == CUDA_SUCCESS && now != pool;
}

/* After a call that has failed; unless another pool was set meanwhile. */
static void set_again(CUmemoryPool handle, uint64_t devices)
{
    for (int i = 0; i < EXEC_DEVICES; i++) {
        CUmemoryPool none = NULL;
        if (devices >> i & 1 && !driver_has_another(i, handle))
            atomic_compare_exchange_strong(&own_pools[i], &none, handle);
    }
}

/* All that is known of the pool is taken out first: another one may have the handle before the call returns. */
EXEC_EXPORT CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle)
{
    known_pool *pool = take_out(handle);
    const uint64_t devices = unset(handle);
    const CUresult result = EXEC_CALL(cuMemPoolDestroy, handle);
    if (result == CUDA_SUCCESS) {
        strata_host_free(pool);
        return result;
    }
    set_again(handle, devices);
    if (pool)
        enter(pool);
    return result;
}

/* False: the pool is not known. */
static bool find_pool(CUmemoryPool handle, int *ordinal)
{
    known_pool *pool = NULL;
    if (exec_is_forked())
        return false;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, pools, &handle, sizeof handle, pool);
    if (pool)
        *ordinal = pool->ordinal;
    pthread_mutex_unlock(&lock);
    return pool != NULL;
}

/* A pool that is not known, such as a default one, is taken for one of the stream's device. */
exec_here exec_pool_owner(CUmemoryPool pool, CUstream stream)
{
    exec_here here = exec_device_of_stream(stream);
    int ordinal;
    if (here.refused || !strata_driver_is_open() || !find_pool(pool, &ordinal))
        return here;
    here.device = ordinal == NO_DEVICE ? NULL : exec_device_of_memory(&here, ordinal);
    return here;
}

/* ---- questions ---- */

/* The ready device whose stack stands for this pool, its default one. NULL: none. */
static exec_device *device_of_default(CUmemoryPool pool)
{
    exec_device *device;
    for (size_t i = 0; strata_driver_is_open() && (device = exec_device_next(&i));)
        if (!exec_has_own_pool(device->ordinal) && exec_pool_is_default(device->ordinal, pool))
            return device;
    return NULL;
}

static strata_usage usage_of(exec_device *device)
{
    strata_usage usage = {0};
    exec_free_waiting(device);
    strata_error_suppress_begin();
    strata_runtime_usage(device->runtime, &usage); /* what it cannot say is zero */
    strata_error_suppress_end(false);
    return usage;
}

static cuuint64_t highest(cuuint64_t a, cuuint64_t b)
{
    return a > b ? a : b;
}

static cuuint64_t in_stack(exec_device *device, CUmemPool_attribute attribute)
{
    const strata_usage usage = usage_of(device);
    const bool is_higher = usage.reserved_peak > atomic_load(&device->peak_then);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return usage.reserved_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* a lower bound: after a reset up to a former peak */
        return highest(is_higher ? usage.reserved_peak : atomic_load(&device->reserved_then), usage.reserved_bytes);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return usage.live_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return highest(atomic_load(&device->used_high), usage.live_bytes);
    default:
        return 0;
    }
}

EXEC_EXPORT CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    const CUresult result = EXEC_CALL(cuMemPoolGetAttribute, pool, attribute, value);
    const bool counts = result == CUDA_SUCCESS && value && attribute >= CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT &&
                        attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    exec_device *device = counts ? device_of_default(pool) : NULL;
    if (device)
        *(cuuint64_t *)value += in_stack(device, attribute);
    return result;
}

/* The driver accepts only zero for a peak, which then begins anew. */
EXEC_EXPORT CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    const CUresult result = EXEC_CALL(cuMemPoolSetAttribute, pool, attribute, value);
    const bool is_peak = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    exec_device *device = result == CUDA_SUCCESS && is_peak ? device_of_default(pool) : NULL;
    if (!device)
        return result;
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        atomic_store(&device->used_high, atomic_load(&device->live));
    } else {
        const strata_usage usage = usage_of(device);
        atomic_store(&device->reserved_then, usage.reserved_bytes);
        atomic_store(&device->peak_then, usage.reserved_peak);
    }
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t kept)
{
    const CUresult result = EXEC_CALL(cuMemPoolTrimTo, pool, kept);
    exec_device *device = result == CUDA_SUCCESS ? device_of_default(pool) : NULL;
    size_t released;
    if (!device)
        return result;
    exec_free_waiting(device);
    strata_error_suppress_begin();
    strata_runtime_trim(device->runtime, kept, &released);
    strata_error_suppress_end(false);
    return result;
}
