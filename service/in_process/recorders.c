/* The end of launch recorders, whose failure is the first one. Only work that was not submitted is cancelled: after a
 * failed commit it runs. */
#include "core/base/error.h"
#include "service/in_process/in_process.h"

strata_status service_end_recorder(strata_launch *recorder, strata_status status, bool prepared)
{
    strata_error failed;
    const bool submitted = status == STRATA_SUCCESS;
    if (submitted)
        status = strata_launch_commit(recorder);
    if (status != STRATA_SUCCESS)
        failed = *strata_error_in_force();
    if (prepared && !submitted)
        strata_launch_cancel(recorder);
    const strata_status ended = strata_launch_end(recorder);
    return status == STRATA_SUCCESS ? ended : strata_error_raise_again(&failed);
}
