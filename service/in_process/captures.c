/* Captures on the lanes' streams: a request that fails in one, or leaves one open, must not leave it to the lane's
 * later requests, whose work it would take. */
#include "runtime/captures.h"
#include "core/base/error.h"
#include "service/in_process/in_process.h"

/* Ends a capture that the runtime does not know. *was: there was one. */
static strata_status end_for_driver(CUstream stream, bool *was)
{
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    CUresult result = strata_cu.StreamIsCapturing(stream, &state);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuStreamIsCapturing", "looking for a capture that a request left open");
    if (state == CU_STREAM_CAPTURE_STATUS_NONE)
        return STRATA_SUCCESS;
    *was = true;
    result = strata_cu.StreamEndCapture(stream, &graph);
    if (graph)
        strata_cu.GraphDestroy(graph);
    if (result == CUDA_SUCCESS ||
        (strata_cu.StreamIsCapturing(stream, &state) == CUDA_SUCCESS && state == CU_STREAM_CAPTURE_STATUS_NONE))
        return STRATA_SUCCESS; /* an end with an error is one, too */
    return strata_fail_driver(result, "cuStreamEndCapture", "ending a capture that a request left open");
}

/* The context is current. */
static strata_status leave_capture(const strata_service *service, service_lane *lane, bool *was)
{
    strata_runtime *runtime = service->context->runtime;
    *was = strata_captures_any(runtime) && strata_capture_on(runtime, lane->stream);
    strata_status status = strata_captures_leave_stream(runtime, lane->stream);
    if (status == STRATA_SUCCESS) /* after a reset, perhaps the request's own, the stream is one of before */
        status = strata_check_device_now(runtime->device);
    if (status == STRATA_SUCCESS)
        status = end_for_driver(lane->stream, was);
    lane->captured = status != STRATA_SUCCESS;
    return status;
}

strata_status service_lane_leave_capture(strata_service *service, service_lane *lane)
{
    strata_call_scope scope;
    bool was;
    strata_status status =
        strata_call_scope_enter(&scope, service->context->runtime->device, STRATA_CALL_SCOPE_CONTEXT);
    lane->captured = status != STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        return status;
    status = leave_capture(service, lane, &was);
    strata_call_scope_leave(&scope);
    return status;
}

strata_status service_begin_capture(strata_service *service, service_lane *lane, strata_capture_mode mode)
{
    const strata_status status = strata_capture_begin(service->context->runtime, lane->stream, mode, NULL);
    lane->captured = status != STRATA_SUCCESS; /* perhaps */
    return status;
}

strata_status service_end_capture(strata_service *service, service_lane *lane, strata_status status, strata_graph **out)
{
    if (status == STRATA_SUCCESS)
        status = strata_capture_end(service->context->runtime, lane->stream, out);
    if (status == STRATA_SUCCESS)
        return STRATA_SUCCESS;
    const strata_error failed = *strata_error_in_force();
    service_lane_leave_capture(service, lane); /* its own failure is the next request's */
    return strata_error_raise_again(&failed);
}

strata_status service_end_left_capture(strata_service *service, service_lane *lane, strata_status status)
{
    bool was;
    strata_error failed;
    if (status != STRATA_SUCCESS)
        failed = *strata_error_in_force();
    const strata_status left = leave_capture(service, lane, &was);
    if (status != STRATA_SUCCESS)
        return strata_error_raise_again(&failed);
    if (left == STRATA_SUCCESS && was)
        return strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the function left a capture open on its stream; it was ended");
    return was || left == STRATA_ERROR_DEVICE_RESET ? left : STRATA_SUCCESS;
}
