/* The context in this process: made, lost, ended. A context that a fault of the device has ended cannot be made again
 * in its process (docs/measurements.md), only one that was reset. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/references.h"
#include "runtime/runtime.h"
#include "service/in_process/in_process.h"

#include <strata/info.h>

/* ---- making ---- */

/* The first lane is the primary one. */
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

static strata_status open_in_process(strata_service *service)
{
    if (!service->context)
        service->context = strata_host_zalloc(sizeof *service->context);
    if (!service->context)
        return strata_fail_host_memory("the context of a device service");
    service_context *context = service->context;
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

static bool is_usable(const service_context *context)
{
    return context->runtime && strata_device_is_usable(context->runtime->device);
}

/* References to it live on; it is destroyed when they have gone. Without host memory it is left for good. */
static void retire(service_context *context)
{
    service_retired *retired = strata_host_zalloc(sizeof *retired);
    strata_device_state_bump_generation(context->runtime->state, NULL);
    if (retired) {
        *retired = (service_retired){.next = context->retired, .runtime = context->runtime};
        context->retired = retired;
    }
    context->runtime = NULL;
}

static void close_runtime(strata_service *service)
{
    service_context *context = service->context;
    service_libraries_close(service);
    service_fences_close(context);
    service_modules_close(context, false); /* they go with the context */
    service_lanes_close(context);
    retire(context);
}

/* Work that goes on in a sound context is waited for: it uses host buffers. */
static void settle(service_context *context)
{
    for (size_t i = 0; i < SERVICE_LANES; i++)
        for (size_t j = 0; j < SERVICE_STREAMS_LIMIT; j++)
            if (context->lanes[i][j].begun.first)
                strata_runtime_stream_synchronize(context->runtime, context->lanes[i][j].stream);
}

static void lose(strata_service *service, const strata_error *why)
{
    service_context *context = service->context;
    if (service_classify(service, why) == STRATA_FAILURE_OTHER)
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
    const strata_error failed = status == STRATA_SUCCESS ? (strata_error){0} : *strata_error_in_force();
    if (waits && service_mark_completion(service, lane, request) != STRATA_SUCCESS && status == STRATA_SUCCESS) {
        service_judge(service, strata_error_in_force());
        strata_runtime_stream_synchronize(service->context->runtime, lane->stream); /* it is complete then, or failed */
    }
    if (status != STRATA_SUCCESS) {
        service_judge(service, &failed);
        service_request_note_failure(request, &failed);
    }
    if (lane) {
        service_list_add(&lane->begun, request);
        service_poll_lane(service, lane);
    } else {
        service_request_fail(request, &failed);
        service_request_finish(request);
    }
}

/* ---- the end ---- */

/* In a context that a fault has ended, the driver refuses to end anything: then it is ended without the driver. Errors:
 * BUSY. */
static strata_status end_runtime(strata_runtime *runtime)
{
    strata_device *device = runtime->device;
    const strata_status status = strata_runtime_abandon(runtime);
    if (status != STRATA_ERROR_DRIVER || strata_device_is_lost(device))
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

static strata_status close_in_process(strata_service *service)
{
    service_context *context = service->context;
    if (!context)
        return STRATA_SUCCESS;
    if (context->waiter)
        service_waiter_close(context->waiter);
    context->waiter = NULL;
    if (context->runtime) {
        service_libraries_close(service);
        service_fences_close(context);
        service_modules_close(context, is_usable(context));
        service_lanes_close(context);
        const strata_status status = end_runtime(context->runtime);
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

static strata_status check_ref(const strata_service *service, const strata_ref *ref)
{
    if (ref->record->device && ref->record->device->ordinal == service->options.device)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_WRONG_DEVICE,
                       "the reference is to memory of another device or worker, not of the service's device %d",
                       service->options.device);
}

/* ---- buffers ---- */

static void free_pinned(void *memory, size_t bytes, void *data)
{
    strata_device *device = data;
    strata_call_scope scope;
    (void)bytes;
    strata_error_suppress_begin();
    if (strata_device_is_usable(device) &&
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) ==
            STRATA_SUCCESS) {
        strata_cu.MemFreeHost(memory);
        strata_call_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
}

static strata_status make_pinned(strata_device *device, size_t bytes, void **out)
{
    strata_call_scope scope;
    const strata_status status =
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.MemHostAlloc(out, bytes, CU_MEMHOSTALLOC_PORTABLE);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuMemHostAlloc", "making a host buffer of %zu bytes", bytes);
}

static strata_status make_buffer(strata_service *service, size_t bytes, strata_host_buffer **out)
{
    strata_device *device;
    void *memory;
    if (service_phase_now(service) != SERVICE_RUNNING)
        return strata_fail(STRATA_ERROR_NOT_READY, "the device service has no context yet; wait until it is ready");
    strata_status status = strata_device_get(service->options.device, &device);
    if (status == STRATA_SUCCESS)
        status = make_pinned(device, bytes, &memory);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_host_buffer_wrap(memory, bytes, free_pinned, device, out);
    if (status != STRATA_SUCCESS)
        free_pinned(memory, bytes, device);
    return status;
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
    .make_buffer = make_buffer,
};
