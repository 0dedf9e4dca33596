/* Fences: an event of the device for each. */
#include <strata/fence.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/streams/events.h"
#include "core/streams/stream_map.h"
#include "runtime/runtime.h"

/* PTDS programs see a macro of this name. */
#undef strata_fence_record

struct strata_fence {
    strata_device *device; /* constant, never freed */
    CUevent event;         /* constant */
    bool recorded;         /* read by threads that query or wait, while no thread records */
};

strata_status strata_fence_create(strata_runtime *runtime, strata_fence **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_fence_create: out is NULL");
    *out = NULL;
    strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    strata_fence *fence = strata_host_zalloc(sizeof *fence);
    if (!fence)
        return strata_fail_host_memory("a fence");
    fence->device = runtime->device;
    status = strata_device_take_event(fence->device, &fence->event);
    if (status != STRATA_SUCCESS)
        strata_host_free(fence);
    else
        *out = fence;
    return status;
}

static strata_status check_fence(const strata_fence *fence, const char *call)
{
    if (!fence)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: fence is NULL", call);
    const strata_status status = strata_check_driver();
    return status == STRATA_SUCCESS ? strata_check_device_now(fence->device) : status;
}

/* Finds the stream first, which refuses one that is being captured: the event would be a node of the graph. */
strata_status strata_fence_record(strata_fence *fence, CUstream stream)
{
    strata_stream_ref found;
    strata_call_scope scope;
    strata_status status = check_fence(fence, "strata_fence_record");
    if (status == STRATA_SUCCESS)
        status = strata_stream_resolve(fence->device, stream, &found);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, fence->device, strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.EventRecord(fence->event, stream);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuEventRecord", "recording a fence%s", strata_stream_hint(result));
    fence->recorded = true;
    return STRATA_SUCCESS;
}

/* Makes a driver call for the fence's event, in relaxed mode, so that other captures survive it. */
static strata_status ask(strata_fence *fence, CUresult (*call)(CUevent event), const char *name)
{
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, fence->device, STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = call(fence->event);
    strata_call_scope_leave(&scope);
    if (result == CUDA_ERROR_NOT_READY)
        return STRATA_ERROR_NOT_READY;
    return result == CUDA_SUCCESS ? STRATA_SUCCESS : strata_fail_driver(result, name, "looking at a fence");
}

strata_status strata_fence_query(strata_fence *fence)
{
    const strata_status status = check_fence(fence, "strata_fence_query");
    return status == STRATA_SUCCESS && fence->recorded ? ask(fence, strata_cu.EventQuery, "cuEventQuery") : status;
}

strata_status strata_fence_synchronize(strata_fence *fence)
{
    const strata_status status = check_fence(fence, "strata_fence_synchronize");
    return status == STRATA_SUCCESS && fence->recorded ? ask(fence, strata_cu.EventSynchronize, "cuEventSynchronize")
                                                       : status;
}

strata_status strata_fence_destroy(strata_fence *fence)
{
    const strata_status status = strata_check_not_forked();
    if (!fence || status != STRATA_SUCCESS)
        return status;
    if (strata_device_is_usable(fence->device))
        strata_device_give_event(fence->device, fence->event);
    strata_host_free(fence);
    return STRATA_SUCCESS;
}
