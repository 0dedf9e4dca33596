/* Whether a device's primary context was reset. */
#include "core/base/error.h"
#include "core/streams/device.h"

static strata_status refuse_lost(const strata_device *device)
{
    return strata_fail(
        STRATA_ERROR_DEVICE_RESET,
        "the primary context of device %d was reset (cuDevicePrimaryCtxReset, cudaDeviceReset), which "
        "ended its streams, events and memory: free the blocks, destroy the runtimes and stacks that you made, and "
        "make new ones; strata_runtime_get and strata_malloc take another one by themselves",
        device->ordinal);
}

strata_status strata_check_device(const strata_device *device)
{
    return strata_device_is_lost(device) ? refuse_lost(device) : STRATA_SUCCESS;
}

/* Another module may have begun the context anew, under the same handle. */
bool strata_device_has_its_context(const strata_device *device)
{
    unsigned long long id = 0;
    unsigned flags;
    int active = 1;
    if (strata_device_is_lost(device))
        return false;
    if (device->context_id)
        return strata_cu.CtxGetId(device->context, &id) != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
               (!id || id == device->context_id);
    return !strata_cu.DevicePrimaryCtxGetState ||
           strata_cu.DevicePrimaryCtxGetState(device->handle, &flags, &active) != CUDA_SUCCESS || active;
}

void strata_device_abandon(strata_device *device)
{
    atomic_store_explicit(&device->lost, true, memory_order_release);
    strata_driver_set_reset();
}

void strata_device_mark_ending(strata_device *device, bool begins)
{
    atomic_fetch_add_explicit(&device->ending, begins ? 1 : UINT32_MAX, memory_order_acq_rel);
}

bool strata_devices_look(void)
{
    bool found = false;
    for (int ordinal = 0; ordinal < STRATA_DEVICE_LIMIT; ordinal++) {
        strata_device *device = strata_device_if_open(ordinal);
        if (!device || strata_device_is_lost(device) || strata_device_has_its_context(device))
            continue;
        strata_device_abandon(device);
        found = true;
    }
    return found;
}

bool strata_device_is_usable_now(strata_device *device)
{
    if (strata_driver_is_open() && !strata_device_has_its_context(device))
        strata_devices_look();
    return strata_device_is_usable(device);
}

strata_status strata_check_device_now(strata_device *device)
{
    if (!strata_device_has_its_context(device))
        strata_devices_look();
    return strata_check_device(device);
}

strata_status strata_check_device_again(strata_device *device, uint64_t now)
{
    const strata_status status = strata_check_device_now(device);
    if (status == STRATA_SUCCESS)
        atomic_store_explicit(&device->asked_at, now, memory_order_relaxed);
    return status;
}
