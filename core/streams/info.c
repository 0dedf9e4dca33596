/* Public calls about the driver and the devices: <strata/info.h>. */
#include "core/streams/device.h"

strata_status strata_driver_get_info(strata_driver_info *info)
{
    if (!info)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_driver_get_info: info is NULL");
    *info = (strata_driver_info){0};
    strata_status status = strata_driver_open();
    if (status != STRATA_SUCCESS)
        return status;
    strata_driver_facts driver;
    strata_driver_describe(&driver);
    *info = (strata_driver_info){
        .choice = driver.choice,
        .library = driver.library,
        .simulated = driver.simulated,
        .version = driver.version,
        .device_count = driver.device_count,
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
