/* Scopes for layers outside the library. */
#include "core/base/error.h"
#include "core/streams/device.h"

strata_status strata_driver_scope_enter(strata_driver_scope *scope, int device)
{
    if (!scope)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_driver_scope_enter: scope is NULL");
    *scope = (strata_driver_scope){0};
    strata_device *of;
    strata_call_scope own = {0};
    strata_status status = strata_device_get(device, &of);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&own, of, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status == STRATA_SUCCESS)
        *scope = (strata_driver_scope){own.restore, (int)own.mode, own.switched, own.relaxed};
    return status;
}

void strata_driver_scope_leave(strata_driver_scope *scope)
{
    if (!scope)
        return;
    strata_call_scope own = {.restore = scope->context,
                             .mode = (CUstreamCaptureMode)scope->mode,
                             .switched = scope->switched,
                             .relaxed = scope->relaxed};
    strata_call_scope_leave(&own);
    *scope = (strata_driver_scope){0};
}
