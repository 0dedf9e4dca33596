/* Entering scopes, and waiting for a stream. */
#include "core/streams/call_scope.h"

#include "core/streams/device.h"

static strata_status make_current(strata_call_scope *scope, strata_device *device)
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

static strata_status relax_captures(strata_call_scope *scope)
{
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuThreadExchangeStreamCaptureMode", "exchanging the thread's capture mode");
    scope->relaxed = scope->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return STRATA_SUCCESS;
}

const strata_legacy_gate *strata_legacy_gate_now;

/* The one query about the legacy stream that a capture of a blocking stream survives. */
static strata_status check_legacy(strata_call_scope *scope)
{
    CUstreamCaptureStatus capture;
    if (strata_legacy_gate_now) {
        strata_legacy_gate_now->pass();
        scope->gated = true;
    }
    CUresult result = strata_cu.StreamIsCapturing(CU_STREAM_LEGACY, &capture);
    if (__builtin_expect(result == CUDA_SUCCESS, 1))
        return STRATA_SUCCESS;
    if (result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return strata_fail_driver(result, "cuStreamIsCapturing", "using the legacy default stream");
    return strata_fail(
        STRATA_ERROR_STREAM_CAPTURE,
        "the legacy default stream cannot be used while a stream that synchronizes with it is being captured; capture "
        "a stream made with CU_STREAM_NON_BLOCKING, or wait for the end of the capture");
}

void strata_call_scope_leave_again(strata_call_scope *scope)
{
    if (scope->relaxed)
        strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode);
    if (scope->switched)
        strata_cu.CtxSetCurrent(scope->restore);
}

strata_status strata_call_scope_enter_slow(strata_call_scope *scope, strata_device *device, unsigned needs)
{
    *scope = (strata_call_scope){0};
    strata_status status = needs & STRATA_CALL_SCOPE_CONTEXT ? make_current(scope, device) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        return status;
    if (needs & STRATA_CALL_SCOPE_LEGACY)
        status = check_legacy(scope);
    if (status == STRATA_SUCCESS && needs & STRATA_CALL_SCOPE_RELAXED)
        status = relax_captures(scope);
    if (status != STRATA_SUCCESS)
        strata_call_scope_leave(scope);
    return status;
}

_Atomic uint32_t strata_captures_under_way;

bool strata_asks_captured(CUstream stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    if (strata_call_scope_for(stream) != 0)
        return false;
    const CUresult result = strata_cu.StreamIsCapturing(stream, &capture);
    const bool gone = result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
                      result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_DEINITIALIZED;
    return result == CUDA_SUCCESS ? capture != CU_STREAM_CAPTURE_STATUS_NONE : !gone;
}

strata_status strata_stream_synchronize(strata_device *device, CUstream stream)
{
    strata_call_scope scope;
    if (strata_stream_is_forked(stream))
        return strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the stream was forked into a capture that is under way: it "
                                                        "cannot be waited for until the capture has ended");
    strata_status status = strata_check_device_now(device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, strata_call_scope_for(stream) | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    strata_call_scope_leave_gate(&scope);
    CUresult result = strata_cu.StreamSynchronize(stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuStreamSynchronize", "waiting for a stream%s",
                                                       strata_stream_hint(result));
}
