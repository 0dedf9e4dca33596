/* Opening the driver. */
#include "core/base/driver_state.h"

#include "core/base/asymmetric.h"

strata_status strata_driver_open(void)
{
    strata_driver_failure failure;
    if (strata_driver_is_open())
        return STRATA_SUCCESS;
    strata_barriers_open(); /* before the driver starts threads: with several threads this takes some 10 ms */
    if (strata_driver_load(&failure))
        return STRATA_SUCCESS;
    strata_status status = STRATA_ERROR_DRIVER_NOT_FOUND;
    if (strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN)
        status = STRATA_ERROR_SHUT_DOWN;
    else if (strata_driver_state_now() == STRATA_DRIVER_FORKED)
        status = STRATA_ERROR_FORKED;
    else if (failure.lacks_descriptors)
        status = STRATA_ERROR_IO;
    else if (failure.call)
        status = STRATA_ERROR_DRIVER;
    strata_error *error = strata_error_begin(status);
    error->driver_code = failure.code;
    error->driver_call = failure.call;
    return strata_error_raise(error, "%s", failure.message);
}
