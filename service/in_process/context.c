/* The context in this process: made, lost, ended. A context that a fault of the device has ended cannot be made again
 * in its process (docs/measurements.md), only one that was reset. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/references.h"
#include "runtime/runtime.h"
#include "service/in_process/in_process.h"

#include <stdio.h>

#include <strata/info.h>

/* ---- making ---- */

static bool is_usable(const service_context *context)
{
    return context->runtime && strata_device_is_usable(context->runtime->device);
}

/* Opens the first lane, the primary one, shows the context's handles, and opens the libraries. */
static strata_status show(strata_service *service)
{
    const service_context *context = service->context;
    strata_device_info info;
    service_lane *primary;
    strata_status status = service_lane_open(service, STRATA_PRIORITY_NORMAL, STRATA_HINT_NONE, 0, &primary);
    if (status == STRATA_SUCCESS)
        status = strata_device_get_info(service->options.device, &info);
    if (status != STRATA_SUCCESS)
        return status;
    atomic_store_explicit(&service->compute_major, (uint32_t)info.compute_major, memory_order_relaxed);
    atomic_store_explicit(&service->compute_minor, (uint32_t)info.compute_minor, memory_order_relaxed);
    const CUcontext current = strata_device_state_current_context(context->runtime->state);
    strata_device_state_install_context(service->state, current);
    strata_lock_take(&service->lock);
    service->snapshot = (strata_service_snapshot){.ready = true,
                                                  .generation = strata_device_state_generation(service->state),
                                                  .context = current,
                                                  .stream = primary->stream,
                                                  .runtime = context->runtime};
    strata_lock_release(&service->lock);
    return service->options.libraries && service->options.libraries[0]
               ? service_libraries_open(service, service->options.libraries)
               : STRATA_SUCCESS;
}

static void close_runtime(strata_service *service);

/* Destroys retired runtimes whose references have gone. */
static void end_unused(service_context *context)
{
    for (service_retired **link = &context->retired, *retired; (retired = *link);) {
        if (strata_runtime_destroy(retired->runtime) != STRATA_SUCCESS) {
            link = &retired->next;
            continue;
        }
        *link = retired->next;
        strata_host_free(retired);
    }
}

static strata_status open_in_process(strata_service *service)
{
    if (!service->context)
        service->context = strata_host_zalloc(sizeof *service->context);
    if (!service->context)
        return strata_fail_host_memory("the context of a device service");
    service_context *context = service->context;
    end_unused(context);
    const strata_runtime_config config = {.device = service->options.device, .stack_text = service->options.stack_text};
    strata_status status = STRATA_SUCCESS;
    if (service->options.completion == STRATA_COMPLETION_SYNCHRONIZING && !context->waiter)
        status = service_waiter_open(service, &context->waiter);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_create(&config, &context->runtime);
    if (status != STRATA_SUCCESS)
        return status;
    strata_device_state_start_at(context->runtime->state, strata_device_state_generation(service->state));
    status = show(service);
    if (status == STRATA_SUCCESS)
        return STRATA_SUCCESS;
    const strata_error why = *strata_error_in_force();
    close_runtime(service);
    return strata_error_raise_again(&why);
}

/* ---- losing ---- */

/* References to it live on; it is destroyed when they have gone. Without host memory it is left for good. */
static void retire(service_context *context)
{
    service_retired *retired = strata_host_zalloc(sizeof *retired);
    if (retired) {
        *retired = (service_retired){.next = context->retired, .runtime = context->runtime};
        context->retired = retired;
    }
    context->runtime = NULL;
}

/* Shows the handles no more, before they end. */
static void hide(strata_service *service)
{
    strata_lock_take(&service->lock);
    service->snapshot = (strata_service_snapshot){0};
    strata_lock_release(&service->lock);
}

static strata_status close_handles(strata_service *service, bool leave)
{
    service_context *context = service->context;
    hide(service);
    service_libraries_close(service);
    service_fences_close(context);
    const strata_status status = service_modules_close(context, leave);
    return status == STRATA_SUCCESS ? service_lanes_close(context, leave) : status;
}

static void close_runtime(strata_service *service)
{
    close_handles(service, true);
    retire(service->context);
}

/* Work that goes on in a sound context is waited for: it uses host buffers. One in error answers at once. */
static void settle(service_context *context)
{
    for (size_t i = 0; i < SERVICE_LANES; i++)
        for (size_t j = 0; j < SERVICE_STREAMS_LIMIT; j++)
            if (context->lanes[i][j].begun.first && context->lanes[i][j].stream)
                strata_runtime_stream_synchronize(context->runtime, context->lanes[i][j].stream);
}

static void lose(strata_service *service, const strata_error *why)
{
    service_context *context = service->context;
    strata_device_state_bump_generation(context->runtime->state, NULL);
    if (is_usable(context))
        settle(context);
    service_fail_lanes(service, why, true);
    close_runtime(service);
    atomic_store_explicit(&service->active_streams, 0, memory_order_relaxed);
}

static bool survives(const strata_error *error)
{
    return error->status == STRATA_ERROR_DEVICE_RESET;
}

/* ---- requests ---- */

static void note_failure(strata_service *service, strata_future *request, strata_status status)
{
    strata_error failed = *strata_error_in_force();
    if (failed.status != status) { /* the thread's record is of another failure */
        failed = (strata_error){.status = status};
        snprintf(failed.message, sizeof failed.message, "the request failed: %s", strata_status_text(status));
    }
    service_judge(service, &failed);
    if (!request->failed)
        service_request_note_failure(request, &failed);
}

/* Waits for the end of work that could not be marked. */
static void wait_instead(strata_service *service, const service_lane *lane, strata_future *request)
{
    service_judge(service, strata_error_in_force());
    const strata_status status = strata_runtime_stream_synchronize(service->context->runtime, lane->stream);
    if (status != STRATA_SUCCESS)
        note_failure(service, request, status);
}

/* A request whose work ends on the host is answered at once, unless its lane has others before it. */
static void begin(strata_service *service, strata_future *request)
{
    service_lane *lane = NULL;
    bool waits = false;
    service_range_begin(service, request);
    strata_status status = service_lane_of(service, request, &lane);
    if (status == STRATA_SUCCESS)
        status = service_submits[request->kind](service, lane, request, &waits);
    service_range_end(service);
    service_future_submitted(request);
    if (request->deadline && service_clock() >= request->deadline) /* the timer may have come too early */
        service_request_expire(request);
    if (status != STRATA_SUCCESS)
        note_failure(service, request, status);
    if (waits && service_mark_completion(service, lane, request) != STRATA_SUCCESS)
        wait_instead(service, lane, request);
    service_list_add(&lane->begun, request);
    service->context->begun++;
    service_poll_lane(service, lane);
}

/* ---- the end ---- */

/* Ends a runtime. In a context that a fault has ended, the driver refuses to end anything: then it is ended without the
 * driver. Errors: BUSY; DRIVER, and the next call goes on. */
static strata_status end_runtime(strata_runtime *runtime)
{
    strata_device *device = runtime->device;
    const strata_status status = strata_runtime_abandon(runtime);
    if (status != STRATA_ERROR_DRIVER || strata_device_is_lost(device) ||
        !service_is_sticky(strata_error_in_force()->driver_code))
        return status;
    strata_device_abandon(device);
    return strata_runtime_abandon(runtime);
}

static strata_status end_retired(service_context *context)
{
    while (context->retired) {
        service_retired *retired = context->retired;
        const strata_status status = end_runtime(retired->runtime);
        if (status != STRATA_SUCCESS)
            return status;
        context->retired = retired->next;
        strata_host_free(retired);
    }
    return STRATA_SUCCESS;
}

static strata_status close_context(strata_service *service)
{
    service_context *context = service->context;
    if (context->waiter)
        service_waiter_close(context->waiter);
    context->waiter = NULL;
    if (context->runtime) {
        strata_status status = close_handles(service, !strata_device_is_usable_now(context->runtime->device));
        if (status == STRATA_ERROR_DRIVER && service_is_sticky(strata_error_in_force()->driver_code))
            status = close_handles(service, true);
        if (status == STRATA_SUCCESS)
            status = end_runtime(context->runtime);
        if (status != STRATA_SUCCESS)
            return status;
        context->runtime = NULL;
    }
    const strata_status status = end_retired(context);
    if (status != STRATA_SUCCESS)
        return status;
    strata_host_free(context);
    service->context = NULL;
    return STRATA_SUCCESS;
}

/* The runtime does not know which of its graphs were made of requests. */
static strata_status fail_busy(void)
{
    const strata_error why = *strata_error_in_force();
    return strata_fail(STRATA_ERROR_BUSY,
                       "the device service cannot end yet: %.200s. Release its graphs of requests by "
                       "strata_service_graph_release, destroy those of functions by strata_graph_destroy, free the "
                       "blocks of its functions, and destroy it again",
                       why.message);
}

static strata_status close_in_process(strata_service *service)
{
    const strata_status status = service->context ? close_context(service) : STRATA_SUCCESS;
    service_buffers_unlock_left();
    return status == STRATA_ERROR_BUSY ? fail_busy() : status;
}

static void give_up(strata_service *service, const strata_error *why)
{
    if (service->context)
        service_fail_lanes(service, why, false);
}

/* ---- facts ---- */

static int no_descriptor(const strata_service *service)
{
    (void)service;
    return -1;
}

static void tell_memory(strata_service *service, strata_service_stats *stats)
{
    strata_device_info info;
    if (!stats->ready)
        return;
    strata_error_suppress_begin();
    if (strata_device_get_info(service->options.device, &info) == STRATA_SUCCESS) {
        stats->free_bytes = info.free_bytes;
        stats->total_bytes = info.total_bytes;
    }
    strata_error_suppress_end(false);
}

/* While there is no context the reference is stale, which is checked before. */
static strata_status check_ref(strata_service *service, const strata_ref *ref)
{
    strata_lock_take(&service->lock);
    const strata_runtime *runtime = service->snapshot.runtime;
    strata_lock_release(&service->lock);
    return ref->runtime == runtime || !runtime
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_WRONG_DEVICE,
                             "the reference is to memory of another runtime or service, which device %d's service "
                             "cannot use",
                             service->options.device);
}

const service_backend service_in_process = {
    .open = open_in_process,
    .begin = begin,
    .poll = service_poll_lanes,
    .patience = service_lanes_patience,
    .descriptor = no_descriptor,
    .lose = lose,
    .survives = survives,
    .give_up = give_up,
    .close = close_in_process,
    .tell_memory = tell_memory,
    .check_ref = check_ref,
    .make_buffer = service_make_buffer,
};
