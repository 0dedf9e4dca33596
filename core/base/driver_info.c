/* Public calls about the driver. */
#include "core/base/driver_state.h"

#include <strata/info.h>

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

strata_status strata_driver_choose(const char *choice)
{
    if (!choice || !strata_driver_accepts(choice))
        return strata_fail(
            STRATA_ERROR_INVALID_VALUE,
            "driver choice \"%.120s\": expected cuda, sim, auto, or the path of a library, with a '/' in it",
            choice ? choice : "");
    strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS || strata_driver_set_choice(choice))
        return status;
    return strata_fail(
        STRATA_ERROR_BUSY,
        "the driver is already open; call strata_driver_choose(\"%.120s\") before the first call that needs the driver",
        choice);
}

strata_status strata_driver_count_calls(void)
{
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS || strata_driver_enable_counting())
        return status;
    return strata_fail(
        STRATA_ERROR_BUSY,
        "the driver is already open; call strata_driver_count_calls before the first call that needs the driver");
}

void strata_driver_visit_calls(void (*visit)(const char *name, uint64_t count, void *data), void *data)
{
    if (visit)
        strata_calls_visit(visit, data);
}
