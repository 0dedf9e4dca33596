/* Copies and fills on the device. */
#include "core/base/error.h"
#include "runtime/references.h"
#include "runtime/runtime.h"
#include "service/in_process/in_process.h"

static strata_status submit_device_copy(const strata_future *request, CUstream stream)
{
    if (!strata_cu.MemcpyDtoDAsync)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "the driver has no cuMemcpyDtoDAsync");
    const size_t bytes = request->ref->bytes;
    const CUresult result = strata_cu.MemcpyDtoDAsync(request->to->address, request->ref->address, bytes, stream);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemcpyDtoDAsync", "copying %zu bytes", bytes);
}

static strata_status submit_fill(const strata_future *request, CUstream stream)
{
    const strata_ref *ref = request->ref;
    const bool words = request->fill_width == sizeof(uint32_t);
    if (words && !strata_cu.MemsetD32Async)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "the driver has no cuMemsetD32Async");
    const CUresult result =
        words ? strata_cu.MemsetD32Async(ref->address, request->fill_value, ref->bytes / sizeof(uint32_t), stream)
              : strata_cu.MemsetD8Async(ref->address, (unsigned char)request->fill_value, ref->bytes, stream);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, words ? "cuMemsetD32Async" : "cuMemsetD8Async",
                                                       "filling %zu bytes", ref->bytes);
}

static strata_status submit_on_device(const strata_future *request, CUstream stream)
{
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, request->ref->record->device,
                                                   strata_call_scope_for(stream) | STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    status = (request->to ? submit_device_copy : submit_fill)(request, stream);
    strata_call_scope_leave(&scope);
    return status;
}

/* A copy reads `ref` and writes `to`; a fill has no `to`, and writes `ref`. */
strata_status service_work_on_device(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    strata_launch recorder;
    strata_status status =
        strata_launch_begin(&recorder, service->context->runtime, lane->stream, STRATA_LAUNCH_STRICT);
    *waits = false;
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_launch_use_ref(&recorder, request->ref, request->to ? STRATA_ACCESS_READ : STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS && request->to)
        status = strata_launch_use_ref(&recorder, request->to, STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&recorder);
    const bool prepared = status == STRATA_SUCCESS;
    if (prepared)
        status = submit_on_device(request, lane->stream);
    *waits = prepared;
    return service_end_recorder(&recorder, status, prepared);
}
