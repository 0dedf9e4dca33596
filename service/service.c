/* Services: made, asked, shut down, destroyed. */
#include <strata/service.h>

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "runtime/device_state.h"
#include "service/service.h"

#include <string.h>
#include <time.h>

/* ---- making ---- */

static void set_default(uint32_t *value, uint32_t otherwise)
{
    if (!*value)
        *value = otherwise;
}

static void set_default_time(uint64_t *value, uint64_t otherwise)
{
    if (!*value)
        *value = otherwise;
}

static strata_status check_kind(const char *what, int value, int last)
{
    return value >= 0 && value <= last
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_options: invalid %s %d", what, value);
}

static strata_status check_limit(const char *what, uint32_t value, unsigned most)
{
    return value <= most ? STRATA_SUCCESS
                         : strata_fail(STRATA_ERROR_INVALID_VALUE,
                                       "strata_service_options: %s is %u; at most %u is possible", what, value, most);
}

static strata_status check_options(const strata_service_options *options)
{
    strata_status status = check_kind("form", (int)options->form, STRATA_SERVICE_ISOLATED);
    if (status == STRATA_SUCCESS)
        status = check_kind("completion", (int)options->completion, STRATA_COMPLETION_SYNCHRONIZING);
    if (status == STRATA_SUCCESS)
        status = check_kind("streams", (int)options->streams, STRATA_SERVICE_STREAM_POOLED);
    if (status == STRATA_SUCCESS)
        status = check_kind("device", options->device, STRATA_DEVICE_LIMIT - 1);
    if (status == STRATA_SUCCESS)
        status = check_limit("stream_count", options->stream_count, SERVICE_STREAMS_LIMIT);
    return status == STRATA_SUCCESS ? check_limit("rebuild_limit", options->rebuild_limit, SERVICE_REBUILDS_LIMIT)
                                    : status;
}

static strata_status read_options(const strata_service_options *given, strata_service_options *options)
{
    const uint64_t second = UINT64_C(1000000000);
    const strata_status status = strata_options_read(options, sizeof *options, given, "strata_service_options");
    if (status != STRATA_SUCCESS)
        return status;
    set_default(&options->queue_capacity, 16384);
    set_default(&options->pending_queue_capacity, 1024);
    set_default(&options->stream_count, 4);
    set_default(&options->rebuild_limit, 3);
    set_default_time(&options->poll_interval, 50000);
    set_default_time(&options->poll_limit, 300 * second);
    set_default_time(&options->rebuild_window, 60 * second);
    set_default_time(&options->worker_silence, 10 * second);
    return check_options(options);
}

/* False without host memory. */
static bool copy_text(const char *text, char **copy, const char **option)
{
    if (!text)
        return true;
    *copy = strata_host_zalloc(strlen(text) + 1);
    if (*copy)
        *option = strcpy(*copy, text);
    return *copy != NULL;
}

static strata_status open_parts(strata_service *service)
{
    strata_service_options *options = &service->options;
    if (!copy_text(options->stack_text, &service->stack_text, &options->stack_text) ||
        !copy_text(options->worker, &service->worker, &options->worker) ||
        !copy_text(options->libraries, &service->libraries_text, &options->libraries))
        return strata_fail_host_memory("a device service");
    strata_status status = strata_device_state_create_for(options->device, &service->state);
    if (status == STRATA_SUCCESS && options->record)
        status = service_recorder_open(options->record, options->device, &service->recorder);
    options->record = NULL; /* the caller's text */
    return status == STRATA_SUCCESS ? service_mailbox_open(&service->mailbox, options->form == STRATA_SERVICE_ISOLATED)
                                    : status;
}

static void open_locks(strata_service *service)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&service->ready, &attributes);
    pthread_condattr_destroy(&attributes);
    strata_lock_init(&service->lock, STRATA_RANK_SERVICE);
    service_timer_open(&service->timer, service_request_expire);
}

static void free_parts(strata_service *service)
{
    strata_host_free(service->stack_text);
    strata_host_free(service->worker);
    strata_host_free(service->libraries_text);
    service_recorder_close(service->recorder);
    strata_host_free(service);
}

/* Frees all of a service but its thread, which has ended or never ran. */
static void close_parts(strata_service *service)
{
    service_timer_close(&service->timer);
    service_mailbox_close(&service->mailbox);
    pthread_cond_destroy(&service->ready);
    strata_lock_destroy(&service->lock);
    strata_device_state_drop(service->state, NULL, NULL);
    free_parts(service);
}

static strata_status create(const strata_service_options *options, strata_service **out)
{
    strata_service *service = strata_host_zalloc(sizeof *service);
    if (!service)
        return strata_fail_host_memory("a device service");
    service->options = *options;
    service->backend = service_backend_of(options->form);
    service->forks = service_forks();
    atomic_init(&service->deadline, UINT64_MAX);
    atomic_init(&service->mailbox.limit, options->pending_queue_capacity);
    strata_status status = open_parts(service);
    if (status != STRATA_SUCCESS) {
        strata_device_state_discard(service->state);
        free_parts(service);
        return status;
    }
    open_locks(service);
    status = service_thread_start(&service->thread, service_thread_run, service, "the thread of a device service");
    if (status == STRATA_SUCCESS)
        *out = service;
    else
        close_parts(service);
    return status;
}

strata_status strata_service_create(const strata_service_options *given, strata_service **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_create: out is NULL");
    *out = NULL;
    strata_service_options options;
    strata_status status = read_options(given, &options);
    if (status != STRATA_SUCCESS)
        return status;
    const int cancel = strata_cancel_forbid();
    status = create(&options, out);
    strata_cancel_restore(cancel);
    return status;
}

/* ---- ending ---- */

strata_status strata_service_shut_down(strata_service *service, uint64_t nanoseconds)
{
    const strata_status status = service_check(service, "strata_service_shut_down");
    if (status != STRATA_SUCCESS)
        return status;
    uint64_t deadline;
    if (__builtin_add_overflow(service_clock(), nanoseconds, &deadline))
        deadline = UINT64_MAX;
    uint64_t before = atomic_load_explicit(&service->deadline, memory_order_relaxed);
    while (deadline < before && !atomic_compare_exchange_weak_explicit(&service->deadline, &before, deadline,
                                                                       memory_order_release, memory_order_relaxed))
        ;
    strata_device_state_begin_shutdown(service->state);
    strata_lock_take(&service->lock);
    atomic_store_explicit(&service->shut_down, true, memory_order_release);
    pthread_cond_broadcast(&service->ready);
    strata_lock_release(&service->lock);
    service_mailbox_wake(&service->mailbox);
    return STRATA_SUCCESS;
}

/* Errors: why the service cannot end yet. */
static strata_status wait_until_over(strata_service *service)
{
    strata_lock_take(&service->lock);
    while (service->end == SERVICE_GOES_ON)
        pthread_cond_wait(&service->ready, &service->lock.mutex);
    const bool over = service->end == SERVICE_OVER;
    const strata_error why = service->why_not_yet;
    strata_lock_release(&service->lock);
    return over ? STRATA_SUCCESS : strata_error_raise_again(&why);
}

static strata_status destroy(strata_service *service)
{
    strata_status status = service_check_fork(service->forks);
    if (status == STRATA_SUCCESS && (service_is_own_thread(service) || service_timer_is_own_thread(&service->timer)))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_destroy: called on a thread of the service, "
                                                         "which it would wait for; destroy it on another one");
    if (status == STRATA_SUCCESS)
        status = strata_service_shut_down(service, UINT64_MAX);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&service->lock);
    if (service->end == SERVICE_NOT_YET)
        service->end = SERVICE_GOES_ON;
    atomic_store_explicit(&service->ending, true, memory_order_release);
    strata_lock_release(&service->lock);
    service_mailbox_wake(&service->mailbox);
    status = wait_until_over(service);
    if (status != STRATA_SUCCESS)
        return status;
    pthread_join(service->thread, NULL);
    close_parts(service);
    return STRATA_SUCCESS;
}

strata_status strata_service_destroy(strata_service *service)
{
    if (!service)
        return STRATA_SUCCESS;
    const int cancel = strata_cancel_forbid();
    const strata_status status = destroy(service);
    strata_cancel_restore(cancel);
    return status;
}

/* ---- asking ---- */

strata_status strata_service_wait_ready(strata_service *service, uint64_t nanoseconds)
{
    strata_status status = service_check(service, "strata_service_wait_ready");
    if (status == STRATA_SUCCESS && service_is_own_thread(service))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "strata_service_wait_ready: called on the service's own thread, which makes the context");
    if (status != STRATA_SUCCESS)
        return status;
    uint64_t until;
    if (__builtin_add_overflow(service_clock(), nanoseconds, &until))
        until = INT64_MAX;
    const struct timespec time = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
    bool over = false;
    const int cancel = strata_cancel_forbid();
    strata_lock_take(&service->lock);
    while (service_phase_now(service) == SERVICE_OPENING &&
           !atomic_load_explicit(&service->shut_down, memory_order_relaxed) && !over)
        over = pthread_cond_timedwait(&service->ready, &service->lock.mutex, &time) != 0 && service_clock() >= until;
    const bool starting = service_phase_now(service) == SERVICE_OPENING;
    strata_lock_release(&service->lock);
    strata_cancel_restore(cancel);
    status = service_check_open(service);
    if (status != STRATA_SUCCESS || !starting)
        return status;
    char last[SERVICE_FAILURE_TEXT];
    service_tell_last_failure(service, last, sizeof last);
    return strata_fail(STRATA_ERROR_TIMEOUT, "the device service has no context yet%s", last);
}

strata_status strata_service_stopped(strata_service *service)
{
    const strata_status status = service_check(service, "strata_service_stopped");
    return status == STRATA_SUCCESS && service_phase_now(service) == SERVICE_STOPPED ? service_refuse_stopped(service)
                                                                                     : status;
}

strata_device_state *strata_service_device_state(strata_service *service)
{
    return service_check(service, "strata_service_device_state") == STRATA_SUCCESS ? service->state : NULL;
}

strata_status strata_service_get_snapshot(strata_service *service, strata_service_snapshot *out)
{
    if (out)
        *out = (strata_service_snapshot){0};
    const strata_status status = service_check(service, "strata_service_get_snapshot");
    if (status != STRATA_SUCCESS)
        return status;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_get_snapshot: out is NULL");
    if (service->options.form == STRATA_SERVICE_ISOLATED)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "the context of an isolated service is its worker's: its handles mean nothing here");
    strata_lock_take(&service->lock);
    *out = service->snapshot;
    strata_lock_release(&service->lock);
    return STRATA_SUCCESS;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static uint64_t difference(uint64_t more, uint64_t less)
{
    return more > less ? more - less : 0; /* they are not read at one time */
}

strata_status strata_service_get_stats(strata_service *service, strata_service_stats *out)
{
    if (out)
        *out = (strata_service_stats){0};
    const strata_status status = service_check(service, "strata_service_get_stats");
    if (status != STRATA_SUCCESS)
        return status;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_get_stats: out is NULL");
    const uint64_t held = load(&service->mailbox.held), in_flight = load(&service->in_flight);
    *out = (strata_service_stats){
        .ready = service_phase_now(service) == SERVICE_RUNNING,
        .generation = strata_device_state_generation(service->state),
        .rebuilds = load(&service->rebuilds),
        .compute_major = atomic_load_explicit(&service->compute_major, memory_order_relaxed),
        .compute_minor = atomic_load_explicit(&service->compute_minor, memory_order_relaxed),
        .active_streams = atomic_load_explicit(&service->active_streams, memory_order_relaxed),
        .queued = difference(held, in_flight),
        .in_flight = in_flight,
        .done = load(&service->done),
        .failed = load(&service->failed),
        .timeouts = load(&service->timeouts),
        .cancelled = load(&service->cancelled),
        .bytes_to_host = load(&service->bytes_to_host),
        .bytes_from_host = load(&service->bytes_from_host),
        .worker = atomic_load_explicit(&service->worker_process, memory_order_relaxed),
    };
    if (service->recorder)
        service_recorder_tell(service->recorder, out);
    service->backend->tell_memory(service, out);
    return STRATA_SUCCESS;
}
