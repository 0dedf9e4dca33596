/* Streams for requests, by priority and hint, one for all, for each sender, or several that senders share. */
#include "core/base/error.h"
#include "runtime/runtime.h"
#include "service/in_process/in_process.h"

/* ---- streams ---- */

/* The device's own range: lower numbers come first (CUDA Driver API, cuCtxGetStreamPriorityRange). */
static int number_of(strata_priority priority)
{
    int least = 0, greatest = 0;
    if (!strata_cu.CtxGetStreamPriorityRange || strata_cu.CtxGetStreamPriorityRange(&least, &greatest) != CUDA_SUCCESS)
        return 0;
    return priority == STRATA_PRIORITY_HIGH  ? greatest
           : priority == STRATA_PRIORITY_LOW ? least
                                             : (least + greatest) / 2;
}

static strata_status make_stream(const strata_runtime *runtime, strata_priority priority, CUstream *out)
{
    strata_call_scope scope;
    const strata_status status =
        strata_call_scope_enter(&scope, runtime->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.StreamCreateWithPriority
                                ? strata_cu.StreamCreateWithPriority(out, CU_STREAM_NON_BLOCKING, number_of(priority))
                                : strata_cu.StreamCreate(out, CU_STREAM_NON_BLOCKING);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuStreamCreateWithPriority", "making a stream of a device service");
}

static strata_status destroy_stream(const strata_runtime *runtime, CUstream stream)
{
    strata_call_scope scope;
    if (!strata_device_is_usable(runtime->device))
        return STRATA_SUCCESS;
    const strata_status status = strata_call_scope_enter(&scope, runtime->device, STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.StreamDestroy(stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuStreamDestroy", "destroying a stream of a device service");
}

strata_status service_lane_open(strata_service *service, strata_priority priority, strata_service_hint hint,
                                size_t index, service_lane **out)
{
    strata_runtime *runtime = service->context->runtime;
    service_lane *lane = &service->context->lanes[priority * SERVICE_HINTS + hint][index];
    CUstream stream;
    *out = lane;
    strata_status status = strata_check_device_now(runtime->device); /* the stream may be one of before a reset */
    if (lane->stream)
        return status == STRATA_SUCCESS && lane->captured ? service_lane_leave_capture(service, lane) : status;
    if (status == STRATA_SUCCESS)
        status = make_stream(runtime, priority, &stream);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_runtime_register_stream(runtime, stream);
    if (status != STRATA_SUCCESS) {
        const strata_error failed = *strata_error_in_force();
        destroy_stream(runtime, stream);
        return strata_error_raise_again(&failed);
    }
    lane->stream = stream;
    return STRATA_SUCCESS;
}

/* A context in error begins no host function, and does not say so: the bell outlives those that are not over. */
static void close_bell(const service_context *context, service_lane *lane)
{
    if (!lane->bell)
        return;
    strata_runtime_stream_synchronize(context->runtime, lane->stream);
    service_bell_close(lane->bell);
    lane->bell = NULL;
}

/* A stream that is registered is not destroyed: its runtime would use a dead handle. */
static strata_status close_lane(const service_context *context, service_lane *lane)
{
    if (!lane->unregistered) {
        close_bell(context, lane);
        const strata_status status = strata_runtime_unregister_stream(context->runtime, lane->stream);
        if (status != STRATA_SUCCESS)
            return status;
        lane->unregistered = true;
    }
    return destroy_stream(context->runtime, lane->stream);
}

strata_status service_lanes_close(service_context *context, bool leave)
{
    strata_status first = STRATA_SUCCESS;
    for (size_t i = 0; i < SERVICE_LANES; i++)
        for (size_t j = 0; j < SERVICE_STREAMS_LIMIT && first == STRATA_SUCCESS; j++) {
            service_lane *lane = &context->lanes[i][j];
            if (!lane->stream)
                continue;
            const strata_status status = close_lane(context, lane);
            if (!leave)
                first = status;
            if (first == STRATA_SUCCESS)
                *lane = (service_lane){0};
        }
    for (size_t i = 0; i < SERVICE_STREAMS_LIMIT && first == STRATA_SUCCESS; i++)
        context->senders[i] = 0;
    return first;
}

/* ---- senders ---- */

/* The first senders get an index each; later ones share. */
static size_t index_of_first_come(uint64_t *senders, size_t count, uint64_t sender)
{
    for (size_t i = 0; i < count; i++) {
        if (!senders[i])
            senders[i] = sender;
        if (senders[i] == sender)
            return i;
    }
    return (size_t)(sender % count);
}

strata_status service_lane_of(strata_service *service, const strata_future *request, service_lane **out)
{
    const strata_service_options *options = &service->options;
    size_t index = 0;
    if (options->streams == STRATA_SERVICE_STREAM_POOLED)
        index = (size_t)(request->sender % options->stream_count);
    if (options->streams == STRATA_SERVICE_STREAM_PER_SENDER && request->sender)
        index = index_of_first_come(service->context->senders, options->stream_count, request->sender);
    return service_lane_open(service, request->priority, request->hint, index, out);
}
