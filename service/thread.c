/* The service's thread: it takes requests, begins them while there is a context, and sees to their ends. */
#include "core/base/error.h"
#include "runtime/device_state.h"
#include "service/service.h"

#include <sys/prctl.h>

enum { BURST = 64 }; /* requests that begin before completions are looked for */

static const strata_priority order[] = {STRATA_PRIORITY_HIGH, STRATA_PRIORITY_NORMAL, STRATA_PRIORITY_LOW};

static strata_future *take_next(strata_service *service)
{
    strata_future *request = NULL;
    for (size_t i = 0; i < SERVICE_PRIORITIES && !request; i++)
        request = service_list_take(&service->queued[order[i]]);
    return request;
}

static bool has_queued(const strata_service *service)
{
    bool has = false;
    for (size_t i = 0; i < SERVICE_PRIORITIES; i++)
        has = has || service->queued[i].first;
    return has;
}

/* ---- beginning ---- */

static void begin(strata_service *service, strata_future *request)
{
    if (!service_future_begin(request)) { /* cancelled, or too late */
        service_request_finish(request);
        return;
    }
    atomic_fetch_add_explicit(&service->in_flight, 1, memory_order_relaxed);
    request->begun_at = service_clock();
    if (service->recorder)
        service_recorder_begin(service->recorder, request);
    service->backend->begin(service, request);
}

/* A shutdown refuses what has not begun. */
static bool may_begin(const strata_service *service)
{
    return !service->lost && !atomic_load_explicit(&service->shut_down, memory_order_relaxed);
}

static void begin_some(strata_service *service)
{
    strata_future *request;
    for (unsigned begun = 0; begun < BURST && may_begin(service) && (request = take_next(service)); begun++) {
        begin(service, request);
        service_mailbox_take_all(&service->mailbox, service->queued); /* a function may have taken long */
    }
}

/* ---- the end ---- */

/* Tells strata_service_destroy that the service is over, or why not yet. */
static void tell_outcome(strata_service *service, strata_status status, const strata_error *why)
{
    strata_lock_take(&service->lock);
    service->end = status == STRATA_SUCCESS ? SERVICE_OVER : SERVICE_NOT_YET;
    if (status != STRATA_SUCCESS)
        service->why_not_yet = *why;
    pthread_cond_broadcast(&service->ready);
    strata_lock_release(&service->lock);
}

/* ---- refusing ---- */

static void refuse_queued(strata_service *service, const strata_error *why)
{
    for (strata_future *request; (request = take_next(service));) {
        service_request_fail(request, why);
        service_request_finish(request);
    }
}

/* While there is no context, answered requests would fill the queue. */
static void drop_answered(strata_service *service)
{
    for (size_t i = 0; i < SERVICE_PRIORITIES; i++) {
        service_list kept = {0};
        for (strata_future *request; (request = service_list_take(&service->queued[i]));)
            if (service_future_state(request) == SERVICE_QUEUED)
                service_list_add(&kept, request);
            else
                service_request_finish(request);
        service->queued[i] = kept;
    }
}

static const strata_error shutting_down = {
    .status = STRATA_ERROR_STALE,
    .message = "the device service is shutting down: the request did not begin, or was not complete at the deadline",
};

/* At the deadline what has begun is answered, though the device may never end it. */
static void shut_down(strata_service *service)
{
    refuse_queued(service, &shutting_down);
    if (service->gave_up || service_clock() < atomic_load_explicit(&service->deadline, memory_order_acquire))
        return;
    service->gave_up = true;
    service->backend->give_up(service, &shutting_down);
}

/* ---- the loop ---- */

static uint64_t until(uint64_t time)
{
    const uint64_t now = service_clock();
    return time == UINT64_MAX ? UINT64_MAX : time > now ? time - now : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void go_on(strata_service *service, bool shuts_down, uint64_t *later)
{
    switch (service_phase_now(service)) {
    case SERVICE_OPENING:
        if (!shuts_down && service_clock() >= *later)
            service_try_open(service, later);
        drop_answered(service);
        service->backend->poll(service);
        break;
    case SERVICE_RUNNING:
        begin_some(service);
        service->backend->poll(service);
        if (service->lost)
            service_handle_loss(service);
        break;
    case SERVICE_STOPPED:
        refuse_queued(service, &service->stopped);
        service->backend->poll(service);
        break;
    }
}

static void sleep_a_while(strata_service *service, bool shuts_down, uint64_t later)
{
    const service_phase phase = service_phase_now(service);
    uint64_t time = UINT64_MAX;
    if ((phase != SERVICE_OPENING || shuts_down) && has_queued(service))
        return;
    if (phase == SERVICE_OPENING && !shuts_down)
        time = until(later);
    time = least(time, service->backend->patience(service));
    if (shuts_down && !service->gave_up)
        time = least(time, until(atomic_load_explicit(&service->deadline, memory_order_acquire)));
    if (time && service->recorder)
        service_recorder_flush(service->recorder);
    if (time)
        service_mailbox_sleep(&service->mailbox, service->backend->descriptor(service), time);
}

/* Closes the form. False: graphs or blocks of the program are left, and strata_service_destroy tells of them. */
static bool close_all(strata_service *service)
{
    const strata_status status = service->backend->close(service);
    if (status != STRATA_SUCCESS)
        atomic_store_explicit(&service->ending, false, memory_order_release);
    tell_outcome(service, status, strata_error_in_force());
    return status == STRATA_SUCCESS;
}

/* Ends the service once no request is held. False: not yet, and strata_service_destroy is told why if it would wait for
 * the device. */
static bool end(strata_service *service)
{
    static const strata_error busy = {.status = STRATA_ERROR_BUSY,
                                      .message =
                                          "work of the device service has not ended by its deadline; its requests "
                                          "are answered, and it can be destroyed when that work has ended"};
    if (atomic_load_explicit(&service->mailbox.held, memory_order_acquire) == 0)
        return close_all(service);
    if (service->gave_up) {
        atomic_store_explicit(&service->ending, false, memory_order_release);
        tell_outcome(service, STRATA_ERROR_BUSY, &busy);
    }
    return false;
}

/* Whether a word came since the round began: its wake may have been taken with requests. */
static bool is_told(const strata_service *service, bool ending, bool shuts_down)
{
    return atomic_load_explicit(&service->ending, memory_order_acquire) != ending ||
           atomic_load_explicit(&service->shut_down, memory_order_acquire) != shuts_down;
}

/* All that the service's calls fail with goes into answers. */
void *service_thread_run(void *data)
{
    strata_service *service = data;
    uint64_t later = 0;
    service_enter_own_thread(service);
    prctl(PR_SET_NAME, "strata-service");
    prctl(PR_SET_TIMERSLACK, 1UL); /* polling sleeps for 50 us */
    strata_error_suppress_begin();
    for (;;) {
        const bool ending = atomic_load_explicit(&service->ending, memory_order_acquire);
        const bool shuts_down = atomic_load_explicit(&service->shut_down, memory_order_acquire);
        service_mailbox_take_all(&service->mailbox, service->queued);
        if (shuts_down)
            shut_down(service);
        go_on(service, shuts_down, &later);
        if (ending && end(service))
            break;
        if (!is_told(service, ending, shuts_down))
            sleep_a_while(service, shuts_down, later);
    }
    if (service->recorder)
        service_recorder_flush(service->recorder);
    strata_error_suppress_end(false);
    return NULL;
}
