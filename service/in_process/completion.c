/* How the ends of requests are learnt: by asking the driver, by its host functions, or from a thread that waits. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/runtime.h"
#include "service/in_process/in_process.h"

#include <string.h>

enum {
    LOOK_FOR_ERRORS = 20000000, /* ns: a context in error runs no host function */
    LOOK_FOR_LATE = 500000000,  /* ns: requests beyond poll_limit */
};

/* ---- fences ---- */

static strata_status take_fence(service_context *context, strata_fence **out)
{
    if (context->fence_count) {
        *out = context->fences[--context->fence_count];
        return STRATA_SUCCESS;
    }
    return strata_fence_create(context->runtime, out);
}

static bool reserve_fence(service_context *context)
{
    if (context->fence_count < context->fence_room)
        return true;
    const size_t room = context->fence_room ? 2 * context->fence_room : 64;
    strata_fence **fences = strata_host_zalloc(room * sizeof *fences);
    if (!fences)
        return false;
    if (context->fences)
        memcpy(fences, context->fences, context->fence_count * sizeof *fences);
    strata_host_free(context->fences);
    context->fences = fences;
    context->fence_room = room;
    return true;
}

static void give_fence(service_context *context, strata_future *request)
{
    strata_fence *fence = request->fence;
    request->fence = NULL;
    if (!fence)
        return;
    if (reserve_fence(context))
        context->fences[context->fence_count++] = fence;
    else
        strata_fence_destroy(fence);
}

void service_fences_close(service_context *context)
{
    while (context->fence_count)
        strata_fence_destroy(context->fences[--context->fence_count]);
    strata_host_free(context->fences);
    context->fences = NULL;
    context->fence_room = 0;
}

/* ---- marking ---- */

static strata_status ask_host_function(const service_context *context, service_lane *lane, service_mailbox *box,
                                       strata_future *request)
{
    strata_call_scope scope;
    if (!lane->bell)
        lane->bell = service_bell_make(box);
    if (!lane->bell)
        return strata_fail_host_memory("the bell of a stream");
    strata_device *device = context->runtime->device;
    strata_status status = strata_check_device_now(device); /* after a reset the stream is one of before */
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, strata_call_scope_for(lane->stream));
    if (status != STRATA_SUCCESS)
        return status;
    service_bell_hold(lane->bell);
    const CUresult result = strata_cu.LaunchHostFunc(lane->stream, service_bell_ring, lane->bell);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS) {
        service_bell_unhold(lane->bell);
        return strata_fail_driver(result, "cuLaunchHostFunc", "asking for the end of a request");
    }
    request->host_call = ++lane->host_asked;
    return STRATA_SUCCESS;
}

static bool uses_host_functions(const strata_service *service)
{
    return service->options.completion == STRATA_COMPLETION_HOST_FUNCTION && strata_cu.LaunchHostFunc;
}

strata_status service_mark_completion(strata_service *service, service_lane *lane, strata_future *request)
{
    service_context *context = service->context;
    if (uses_host_functions(service))
        return ask_host_function(context, lane, &service->mailbox, request);
    strata_status status = take_fence(context, &request->fence);
    if (status == STRATA_SUCCESS)
        status = strata_fence_record(request->fence, lane->stream);
    if (status != STRATA_SUCCESS)
        give_fence(context, request);
    else if (context->waiter && request->hint != STRATA_HINT_SHORT) /* that thread may be behind long work */
        service_waiter_add(context->waiter, request);
    return status;
}

/* ---- looking ---- */

/* The stream's error, asked for every LOOK_FOR_ERRORS; else NOT_READY. */
static strata_status look_for_error(service_context *context, service_lane *lane)
{
    const uint64_t now = service_clock();
    if (now - lane->looked_at < LOOK_FOR_ERRORS)
        return STRATA_ERROR_NOT_READY;
    lane->looked_at = now;
    strata_call_scope scope;
    strata_device *device = context->runtime->device;
    strata_status status = strata_check_device_now(device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.StreamQuery(lane->stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY
               ? STRATA_ERROR_NOT_READY
               : strata_fail_driver(result, "cuStreamQuery", "waiting for a request");
}

/* How the request's work stands: SUCCESS: complete; NOT_READY; or why it failed. */
static strata_status look(strata_service *service, service_lane *lane, const strata_future *request)
{
    service_context *context = service->context;
    if (request->host_call)
        return service_bell_calls(lane->bell) >= request->host_call ? STRATA_SUCCESS : look_for_error(context, lane);
    if (!request->fence)
        return STRATA_SUCCESS;
    if (context->waiter && request->hint != STRATA_HINT_SHORT && !service_waiter_is_done(context->waiter, request))
        return STRATA_ERROR_NOT_READY;
    return strata_fence_query(request->fence);
}

static void tell_complete(const strata_future *request, strata_status status)
{
    strata_error_aside aside;
    if (!request->operation.complete)
        return;
    strata_error_set_aside(&aside);
    request->operation.complete(&request->operation, status, request->operation.data);
    strata_error_take_back(&aside);
}

/* Answers and finishes the lane's first request, whose work is over. */
static void end(strata_service *service, service_lane *lane, const strata_error *failed)
{
    strata_future *request = service_list_take(&lane->begun);
    service->context->begun--;
    if (lane->late == request)
        lane->late = NULL;
    if (request->failed)
        failed = request->failed;
    tell_complete(request, failed ? failed->status : STRATA_SUCCESS);
    give_fence(service->context, request);
    if (failed)
        service_request_fail(request, failed);
    else
        service_request_succeed(request);
    service_request_finish(request);
}

/* Gives up requests beyond poll_limit, since the device may go on for ever. The oldest come first, and each is given up
 * once. */
static void give_up_late(const strata_service *service, service_lane *lane)
{
    const uint64_t now = service_clock();
    strata_future *request = lane->late ? lane->late->next : lane->begun.first;
    for (; request && now - request->begun_at >= service->options.poll_limit; request = request->next) {
        service_request_expire(request);
        lane->late = request;
    }
}

/* Ends the lane's first request, which has failed. If that takes the context with it, it is answered with the others.
 * Else its work may go on with a host buffer, which the answer gives back: it is waited for. */
static void end_failed(strata_service *service, service_lane *lane)
{
    const strata_error failed = *strata_error_in_force();
    service_judge(service, &failed);
    if (service->lost)
        return;
    strata_runtime_stream_synchronize(service->context->runtime, lane->stream);
    end(service, lane, &failed);
}

/* Returns whether work is left on the lane. */
bool service_poll_lane(strata_service *service, service_lane *lane)
{
    for (strata_future *request; (request = lane->begun.first) && !service->lost;) {
        const strata_status status = look(service, lane, request);
        if (status == STRATA_ERROR_NOT_READY) {
            give_up_late(service, lane);
            return true;
        }
        if (status != STRATA_SUCCESS)
            end_failed(service, lane);
        else
            end(service, lane, NULL);
    }
    return lane->begun.first != NULL;
}

void service_poll_lanes(strata_service *service)
{
    service_context *context = service->context;
    uint32_t active = 0;
    for (size_t i = 0; i < SERVICE_LANES && context && context->begun; i++)
        for (size_t j = 0; j < service->options.stream_count; j++) {
            service_lane *lane = &context->lanes[i][j];
            if (lane->begun.first && service_poll_lane(service, lane))
                active++;
        }
    atomic_store_explicit(&service->active_streams, active, memory_order_relaxed);
}

static bool has_short_work(const service_context *context)
{
    for (size_t i = STRATA_HINT_SHORT; i < SERVICE_LANES; i += SERVICE_HINTS)
        for (size_t j = 0; j < SERVICE_STREAMS_LIMIT; j++)
            if (context->lanes[i][j].begun.first)
                return true;
    return false;
}

uint64_t service_lanes_patience(const strata_service *service)
{
    if (!atomic_load_explicit(&service->active_streams, memory_order_relaxed))
        return UINT64_MAX;
    if (has_short_work(service->context))
        return 0;
    if (service->options.completion == STRATA_COMPLETION_SYNCHRONIZING) /* the waiting thread rings */
        return service->options.poll_limit < LOOK_FOR_LATE ? service->options.poll_limit : LOOK_FOR_LATE;
    const uint64_t interval = uses_host_functions(service) ? LOOK_FOR_ERRORS : service->options.poll_interval;
    return service->options.poll_limit < interval ? service->options.poll_limit : interval;
}

/* ---- failing ---- */

void service_fail_lanes(strata_service *service, const strata_error *why, bool finish)
{
    service_context *context = service->context;
    if (finish && context->waiter)
        service_waiter_drain(context->waiter);
    for (size_t i = 0; i < SERVICE_LANES; i++)
        for (size_t j = 0; j < SERVICE_STREAMS_LIMIT; j++) {
            service_lane *lane = &context->lanes[i][j];
            for (strata_future *request = lane->begun.first; request && !finish; request = request->next)
                service_request_give_up(request, why);
            while (finish && lane->begun.first)
                end(service, lane, why);
        }
}
