/* Public calls about devices. */
#include "core/streams/device.h"

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

strata_status strata_device_check(int ordinal)
{
    const strata_status status = strata_driver_open();
    if (status != STRATA_SUCCESS)
        return status;
    if (ordinal < 0 || ordinal >= STRATA_DEVICE_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "invalid device %d", ordinal);
    strata_device *device = strata_device_if_open(ordinal);
    return device ? strata_check_device_now(device) : STRATA_SUCCESS;
}
