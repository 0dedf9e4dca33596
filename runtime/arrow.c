/* Arrow's device arrays as arguments of launches. */
#include <strata/arrow.h>

#include "core/base/error.h"
#include "core/streams/stream_map.h"
#include "runtime/launch.h"
#include "runtime/runtime.h"

enum { DEEPEST = 64 };

static bool is_cuda(ArrowDeviceType type)
{
    return type == ARROW_DEVICE_CUDA || type == ARROW_DEVICE_CUDA_HOST || type == ARROW_DEVICE_CUDA_MANAGED;
}

static strata_status check_array(const struct ArrowArray *array, unsigned depth)
{
    const bool valid = array && depth <= DEEPEST && array->length >= 0 && array->n_buffers >= 0 &&
                       array->n_children >= 0 && (!array->n_buffers || array->buffers) &&
                       (!array->n_children || array->children);
    return valid ? STRATA_SUCCESS
                 : strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "strata_launch_use_arrow: an array is missing, nested more than %d deep, or has wrong "
                               "counts or pointers",
                               (int)DEEPEST);
}

static strata_status use_buffers(strata_launch *launch, const struct ArrowArray *array, strata_access access)
{
    strata_status status = STRATA_SUCCESS;
    for (int64_t i = 0; i < array->n_buffers && status == STRATA_SUCCESS; i++)
        if (array->buffers[i])
            status = strata_launch_use_range(launch, (CUdeviceptr)(uintptr_t)array->buffers[i], 1, access);
    return status;
}

/* A buffer without bytes may have any address, so arrays without elements are left alone. */
static strata_status use_array(strata_launch *launch, const struct ArrowArray *array, strata_access access,
                               unsigned depth)
{
    strata_status status = strata_launch_remember(launch, check_array(array, depth));
    if (status == STRATA_SUCCESS && array->length)
        status = use_buffers(launch, array, access);
    for (int64_t i = 0; status == STRATA_SUCCESS && i < array->n_children; i++)
        status = use_array(launch, array->children[i], access, depth + 1);
    return status == STRATA_SUCCESS && array->dictionary ? use_array(launch, array->dictionary, access, depth + 1)
                                                         : status;
}

/* Makes the stream wait for the array's event. Refused in a capture, which an event from outside would end. */
static strata_status wait_for_event(const strata_launch *launch, CUevent event)
{
    strata_device *device = launch->runtime->device;
    const CUstream stream = launch->stream;
    if (strata_stream_is_capturing(device, stream, true))
        return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                           "the array has an event, and a stream that is being captured cannot wait for it");
    strata_call_scope scope;
    const strata_status status = strata_call_scope_enter(&scope, device, strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.StreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuStreamWaitEvent", "waiting for an Arrow array's event%s",
                                    strata_stream_hint(result));
}

static strata_status use_device_array(strata_launch *launch, const struct ArrowDeviceArray *array, strata_access access)
{
    if (!is_cuda(array->device_type))
        return strata_launch_leave_out(launch, STRATA_ERROR_FOREIGN_POINTER, "the array is on no CUDA device");
    const bool elsewhere =
        array->device_type == ARROW_DEVICE_CUDA && array->device_id != strata_runtime_device(launch->runtime);
    if (elsewhere && launch->mode == STRATA_LAUNCH_STRICT)
        return strata_launch_leave_out(launch, STRATA_ERROR_WRONG_DEVICE, "the array is on another device");
    strata_status status = use_array(launch, &array->array, access, 0);
    if (status == STRATA_SUCCESS && array->sync_event)
        status = strata_launch_remember(launch, wait_for_event(launch, *(const CUevent *)array->sync_event));
    return status;
}

strata_status strata_launch_use_arrow(strata_launch *launch, const struct ArrowDeviceArray *array, strata_access access)
{
    strata_status status = strata_launch_check_use(launch, access, "strata_launch_use_arrow");
    if (status == STRATA_SUCCESS && (!array || !array->array.release))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_launch_use_arrow: array is %s",
                             array ? "released" : "NULL");
    return status == STRATA_SUCCESS ? use_device_array(launch, array, access) : strata_launch_remember(launch, status);
}
