/* Opening devices, once each for the process. */
#include "core/streams/device.h"

#include "core/base/host_memory.h"
#include "core/streams/timeline.h"

#include <string.h>

static strata_lock devices_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_DEVICES);
static _Atomic(strata_device *) devices[STRATA_DEVICE_LIMIT]; /* set once, under devices_lock; never freed */

/* An attribute that the driver is too old to know is 0; another failure is kept, lest a device that cannot be asked now
 * counts as one that has nothing for the rest of the process. */
static int attribute(CUdevice handle, CUdevice_attribute which, CUresult *failure)
{
    int value = 0;
    CUresult result = strata_cu.DeviceGetAttribute(&value, which, handle);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
        *failure = result;
    return result == CUDA_SUCCESS ? value : 0;
}

/* The same of what an older driver may not know. */
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
    strata_driver_facts door;
    strata_driver_describe(&door);
    if (ordinal < 0 || ordinal >= door.device_count || ordinal >= STRATA_DEVICE_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "there is no device %d: the driver has %d device%s, counted from 0", ordinal,
                           door.device_count, door.device_count == 1 ? "" : "s");
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

strata_status strata_device_get(int ordinal, strata_device **out)
{
    *out = NULL;
    strata_status status = strata_driver_open();
    if (status != STRATA_SUCCESS)
        return status;
    if (ordinal >= 0 && ordinal < STRATA_DEVICE_LIMIT) {
        *out = atomic_load_explicit(&devices[ordinal], memory_order_acquire);
        if (*out)
            return STRATA_SUCCESS;
    }
    strata_lock_take(&devices_lock);
    bool in_range = ordinal >= 0 && ordinal < STRATA_DEVICE_LIMIT;
    strata_device *device = in_range ? atomic_load_explicit(&devices[ordinal], memory_order_relaxed) : NULL;
    if (!device && (status = open_device(ordinal, &device)) == STRATA_SUCCESS)
        atomic_store_explicit(&devices[ordinal], device, memory_order_release);
    strata_lock_release(&devices_lock);
    *out = status == STRATA_SUCCESS ? device : NULL;
    return status;
}

strata_device *strata_device_if_open(int ordinal)
{
    return atomic_load_explicit(&devices[ordinal], memory_order_acquire);
}

strata_status strata_stream_synchronize(strata_device *device, CUstream stream)
{
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, device, strata_scope_for(stream) | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.StreamSynchronize(stream);
    strata_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuStreamSynchronize", "waiting for a stream%s",
                                                       strata_stream_hint(result));
}

strata_status strata_device_take_event(strata_device *device, CUevent *out)
{
    *out = NULL;
    strata_lock_take(&device->events_lock);
    if (device->event_count)
        *out = device->events[--device->event_count];
    strata_lock_release(&device->events_lock);
    if (*out)
        return STRATA_SUCCESS;
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.EventCreate(out, CU_EVENT_DISABLE_TIMING);
    strata_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    *out = NULL;
    return strata_fail_driver(result, "cuEventCreate", "device %d", device->ordinal);
}

void strata_device_give_event(strata_device *device, CUevent event)
{
    bool kept = false;
    strata_lock_take(&device->events_lock);
    if (device->event_count == device->event_capacity) {
        size_t capacity = device->event_capacity ? 2 * device->event_capacity : 64;
        CUevent *events = strata_host_zalloc(capacity * sizeof *events);
        if (events) {
            if (device->event_count)
                memcpy(events, device->events, device->event_count * sizeof *events);
            strata_host_free(device->events);
            device->events = events;
            device->event_capacity = capacity;
        }
    }
    if (device->event_count < device->event_capacity) {
        device->events[device->event_count++] = event;
        kept = true;
    }
    strata_lock_release(&device->events_lock);
    if (!kept)
        strata_cu.EventDestroy(event);
}

size_t strata_device_free_bytes(strata_device *device)
{
    size_t free_bytes = 0, total = 0;
    strata_scope scope;
    if (strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED) != STRATA_SUCCESS)
        return 0;
    if (strata_cu.MemGetInfo(&free_bytes, &total) != CUDA_SUCCESS)
        free_bytes = 0;
    strata_scope_leave(&scope);
    return free_bytes;
}

static strata_status make_current(strata_scope *scope, strata_device *device)
{
    CUresult result = strata_cu.CtxGetCurrent(&scope->restore);
    const char *call = "cuCtxGetCurrent";
    if (result == CUDA_SUCCESS && scope->restore != device->context) {
        call = "cuCtxSetCurrent";
        result = strata_cu.CtxSetCurrent(device->context);
        scope->switched = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    return strata_fail_driver(result, call, "making the context of device %d current", device->ordinal);
}

static strata_status relax_captures(strata_scope *scope)
{
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuThreadExchangeStreamCaptureMode", "leaving captures of others alone");
    scope->relaxed = scope->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return STRATA_SUCCESS;
}

/* The one question about the legacy stream that a capture of a blocking stream survives. */
static strata_status check_legacy(void)
{
    CUstreamCaptureStatus capture;
    CUresult result = strata_cu.StreamIsCapturing(CU_STREAM_LEGACY, &capture);
    if (__builtin_expect(result == CUDA_SUCCESS, 1))
        return STRATA_SUCCESS;
    if (result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return strata_fail_driver(result, "cuStreamIsCapturing", "using the legacy default stream");
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                       "a stream that synchronizes with the legacy default stream is being captured, so that stream "
                       "cannot be used now: capture a stream made with CU_STREAM_NON_BLOCKING, or wait for its end");
}

void strata_scope_leave_again(strata_scope *scope)
{
    if (scope->relaxed)
        strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode);
    if (scope->switched)
        strata_cu.CtxSetCurrent(scope->restore);
}

strata_status strata_scope_enter_slow(strata_scope *scope, strata_device *device, unsigned needs)
{
    *scope = (strata_scope){0};
    strata_status status = needs & STRATA_SCOPE_CONTEXT ? make_current(scope, device) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        return status;
    if (needs & STRATA_SCOPE_LEGACY)
        status = check_legacy();
    if (status == STRATA_SUCCESS && needs & STRATA_SCOPE_RELAXED)
        status = relax_captures(scope);
    if (status != STRATA_SUCCESS)
        strata_scope_leave(scope);
    return status;
}

strata_status strata_driver_get_info(strata_driver_info *info)
{
    if (!info)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_driver_get_info: info is NULL");
    *info = (strata_driver_info){0};
    strata_status status = strata_driver_open();
    if (status != STRATA_SUCCESS)
        return status;
    strata_driver_facts door;
    strata_driver_describe(&door);
    *info = (strata_driver_info){
        .choice = door.choice,
        .library = door.library,
        .simulated = door.simulated,
        .version = door.version,
        .device_count = door.device_count,
    };
    return STRATA_SUCCESS;
}

strata_status strata_device_get_info(int ordinal, strata_device_info *info)
{
    if (!info)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_device_get_info: info is NULL");
    *info = (strata_device_info){0};
    strata_device *device;
    strata_status status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    *info = device->info;
    info->free_bytes = strata_device_free_bytes(device);
    return STRATA_SUCCESS;
}

strata_status strata_driver_choose(const char *choice)
{
    if (!choice || !strata_driver_accepts(choice))
        return strata_fail(
            STRATA_ERROR_INVALID_VALUE,
            "driver choice \"%.120s\": expected cuda, sim, auto, or the path of a library, with a '/' in it",
            choice ? choice : "");
    strata_status status = strata_not_forked();
    if (status != STRATA_SUCCESS || strata_driver_set_choice(choice))
        return status;
    return strata_fail(STRATA_ERROR_BUSY,
                       "the driver is open already; choose \"%.120s\" before the first call that needs it", choice);
}

strata_status strata_driver_count_calls(void)
{
    if (strata_driver_enable_counting())
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_BUSY, "the driver is open already; counting its calls must be asked for before");
}

void strata_driver_visit_calls(void (*visit)(const char *name, uint64_t count, void *data), void *data)
{
    if (visit)
        strata_calls_visit(visit, data);
}

uint64_t strata_amount_bytes(const strata_amount *amount, const strata_device *device)
{
    if (amount->percent == 0)
        return amount->bytes;
    uint64_t bytes = (uint64_t)((double)device->info.total_bytes * (amount->percent / 100));
    return bytes ? bytes : 1; /* zero would be no amount */
}
