/* Opening devices, once each for the process. */
#include "core/streams/device.h"

#include "core/base/host_memory.h"
#include "core/streams/stream_map.h"
#include "core/streams/timeline.h"

#include <string.h>

static strata_lock devices_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_DEVICES);

/* 0 for an attribute that the driver is too old to know. Other failures are kept: a device that cannot be queried now
 * must not count as one without the capability. */
static int attribute(CUdevice handle, CUdevice_attribute which, CUresult *failure)
{
    int value = 0;
    CUresult result = strata_cu.DeviceGetAttribute(&value, which, handle);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
        *failure = result;
    return result == CUDA_SUCCESS ? value : 0;
}

static bool can(CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return strata_cu.DeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value != 0;
}

static strata_status describe(CUdevice handle, int ordinal, strata_device_info *info)
{
    info->ordinal = ordinal;
    CUresult result = strata_cu.DeviceGetName(info->name, sizeof info->name, handle);
    if (result == CUDA_SUCCESS)
        result = strata_cu.DeviceTotalMem(&info->total_bytes, handle);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuDeviceTotalMem", "device %d", ordinal);
    CUuuid uuid;
    if (strata_cu.DeviceGetUuid && strata_cu.DeviceGetUuid(&uuid, handle) == CUDA_SUCCESS)
        memcpy(info->uuid, uuid.bytes, sizeof info->uuid);
    info->compute_major = attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &result);
    info->compute_minor = attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &result);
    int handle_types = attribute(handle, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, &result);
    info->memory_pools = attribute(handle, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &result) &&
                         strata_cu.MemPoolCreate && strata_cu.MemPoolDestroy && strata_cu.MemAllocFromPoolAsync &&
                         strata_cu.MemFreeAsync && strata_cu.MemPoolSetAttribute && strata_cu.MemPoolGetAttribute &&
                         strata_cu.MemPoolTrimTo;
    info->virtual_memory = attribute(handle, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &result) &&
                           strata_cu.MemGetAllocationGranularity && strata_cu.MemAddressReserve &&
                           strata_cu.MemAddressFree && strata_cu.MemCreate && strata_cu.MemRelease &&
                           strata_cu.MemMap && strata_cu.MemUnmap && strata_cu.MemSetAccess;
    info->managed_memory = attribute(handle, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &result) != 0;
    info->fd_handles = (handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    info->fabric_handles = (handle_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0;
    const bool exports = info->virtual_memory && strata_cu.MemExportToShareableHandle;
    info->mapped_fd_handles = exports && can(handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    info->mapped_fabric_handles = exports && can(handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
    info->stream_ids = strata_cu.StreamGetId != NULL;
    info->gpu_direct_rdma = attribute(handle, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, &result) != 0;
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuDeviceGetAttribute", "device %d", ordinal);
    return STRATA_SUCCESS;
}

static strata_status open_device(int ordinal, strata_device **out)
{
    strata_driver_facts driver;
    strata_driver_describe(&driver);
    if (ordinal < 0 || ordinal >= driver.device_count || ordinal >= STRATA_DEVICE_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "invalid device %d: the driver has %d device%s, counted from 0",
                           ordinal, driver.device_count, driver.device_count == 1 ? "" : "s");
    strata_device *device = strata_host_zalloc(sizeof *device);
    if (!device)
        return strata_fail_host_memory("a device");
    strata_lock_init(&device->events_lock, STRATA_RANK_EVENTS);
    device->ordinal = ordinal;
    bool retained = false;
    strata_status status;
    CUresult result = strata_cu.DeviceGet(&device->handle, ordinal);
    if (result != CUDA_SUCCESS) {
        status = strata_fail_driver(result, "cuDeviceGet", "device %d", ordinal);
        goto refuse;
    }
    if ((status = describe(device->handle, ordinal, &device->info)) != STRATA_SUCCESS)
        goto refuse;
    result = strata_cu.DevicePrimaryCtxRetain(&device->context, device->handle);
    if (result != CUDA_SUCCESS) {
        status = strata_fail_driver(result, "cuDevicePrimaryCtxRetain", "device %d", ordinal);
        goto refuse;
    }
    retained = true;
    if (strata_cu.CtxGetId && strata_cu.CtxGetId(device->context, &device->context_id) != CUDA_SUCCESS)
        device->context_id = 0;
    strata_error_on_lost_context(strata_devices_look);
    if ((status = strata_timeline_open_legacy(device, &device->legacy)) != STRATA_SUCCESS)
        goto refuse;
    *out = device;
    return STRATA_SUCCESS;
refuse:
    if (retained)
        strata_cu.DevicePrimaryCtxRelease(device->handle);
    strata_lock_destroy(&device->events_lock);
    strata_host_free(device);
    return status;
}

static bool has_active_context(CUdevice handle)
{
    unsigned flags;
    int active = 1;
    return !strata_cu.DevicePrimaryCtxGetState ||
           strata_cu.DevicePrimaryCtxGetState(handle, &flags, &active) != CUDA_SUCCESS || active;
}

bool strata_device_is_active(const strata_device *device)
{
    return has_active_context(device->handle);
}

/* Replaces a lost device. Streams of the new context may have the handles of old ones, which are forgotten first. The
 * lock is held.
 *
 * A reset leaves the reference of the lost device, which goes back: after the new one is taken where another module has
 * begun the context anew, which would end otherwise; else before. A module may have given back one reference more than
 * it had (numba-cuda at its second close()): then this one is the last, and would end the new context. */
static strata_status reopen_device(strata_device *lost, strata_device **out)
{
    strata_streams_forget(lost);
    const bool begun = has_active_context(lost->handle);
    if (!begun && !lost->released)
        strata_cu.DevicePrimaryCtxRelease(lost->handle);
    lost->released = lost->released || !begun;
    const strata_status status = open_device(lost->ordinal, out);
    if (status == STRATA_SUCCESS && !lost->released)
        strata_cu.DevicePrimaryCtxRelease(lost->handle);
    return status;
}

strata_status strata_device_get(int ordinal, strata_device **out)
{
    *out = NULL;
    strata_status status = strata_driver_open();
    if (status != STRATA_SUCCESS)
        return status;
    if (ordinal >= 0 && ordinal < STRATA_DEVICE_LIMIT) {
        *out = atomic_load_explicit(&strata_devices[ordinal], memory_order_acquire);
        if (*out && strata_device_has_its_context(*out))
            return STRATA_SUCCESS;
        if (*out)
            strata_devices_look();
    }
    strata_error_suppress_begin(); /* the log callback is the program's: until the lock is released */
    strata_lock_take(&devices_lock);
    bool in_range = ordinal >= 0 && ordinal < STRATA_DEVICE_LIMIT;
    strata_device *device = in_range ? atomic_load_explicit(&strata_devices[ordinal], memory_order_relaxed) : NULL;
    strata_device *lost = device && strata_device_is_lost(device) ? device : NULL;
    if (!device || lost) {
        status = lost ? reopen_device(lost, &device) : open_device(ordinal, &device);
        if (status == STRATA_SUCCESS)
            atomic_store_explicit(&strata_devices[ordinal], device, memory_order_release);
    }
    strata_lock_release(&devices_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    *out = status == STRATA_SUCCESS ? device : NULL;
    return status;
}

/* The lock is held. */
static bool give_back(strata_device *device)
{
    CUcontext kept;
    const bool lost = strata_device_is_lost(device);
    if (device->released || (lost && has_active_context(device->handle)))
        return false;
    strata_cu.DevicePrimaryCtxRelease(device->handle);
    if (!lost && has_active_context(device->handle) && strata_device_has_its_context(device) &&
        strata_cu.DevicePrimaryCtxRetain(&kept, device->handle) == CUDA_SUCCESS)
        return false;
    device->released = true;
    if (!lost)
        strata_device_abandon(device);
    return true;
}

bool strata_device_give_back(int ordinal)
{
    bool ended = false;
    strata_device *device = strata_device_if_open(ordinal);
    if (!device || !strata_driver_is_open() || !strata_cu.DevicePrimaryCtxGetState)
        return false;
    strata_lock_take(&devices_lock);
    if (atomic_load_explicit(&strata_devices[ordinal], memory_order_relaxed) == device)
        ended = give_back(device);
    strata_lock_release(&devices_lock);
    return ended;
}

bool strata_device_read_free_bytes(strata_device *device, size_t *bytes)
{
    size_t total;
    strata_call_scope scope;
    *bytes = 0;
    if (strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
        STRATA_SUCCESS)
        return false;
    const bool known = strata_cu.MemGetInfo(bytes, &total) == CUDA_SUCCESS;
    if (!known)
        *bytes = 0;
    strata_call_scope_leave(&scope);
    return known;
}

size_t strata_device_free_bytes(strata_device *device)
{
    size_t free_bytes;
    strata_device_read_free_bytes(device, &free_bytes);
    return free_bytes;
}
