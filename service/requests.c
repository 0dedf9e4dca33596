/* The life of a request: made, submitted, answered, finished. */
#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "runtime/device_state.h"
#include "service/graph.h"

#include <stdio.h>
#include <string.h>

/* ---- making ---- */

strata_status service_check(const strata_service *service, const char *call)
{
    return service ? service_check_fork(service->forks)
                   : strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: service is NULL", call);
}

strata_status service_refuse_stopped(strata_service *service)
{
    strata_lock_take(&service->lock);
    const strata_error why = service->stopped;
    strata_lock_release(&service->lock);
    return strata_error_raise_again(&why);
}

strata_status service_check_open(strata_service *service)
{
    if (service_phase_now(service) == SERVICE_STOPPED)
        return service_refuse_stopped(service);
    return atomic_load_explicit(&service->shut_down, memory_order_acquire)
               ? strata_fail(STRATA_ERROR_STALE, "the device service is shutting down, and takes no requests")
               : STRATA_SUCCESS;
}

static strata_status read_options(const strata_send_options *given, strata_send_options *send)
{
    const strata_status status = strata_options_read(send, sizeof *send, given, "strata_send_options");
    if (status != STRATA_SUCCESS)
        return status;
    if ((unsigned)send->priority >= SERVICE_PRIORITIES || (unsigned)send->hint > STRATA_HINT_LONG)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_send_options: there is no priority %d or hint %d",
                           (int)send->priority, (int)send->hint);
    return STRATA_SUCCESS;
}

/* Checks the options of a request that is recorded, not sent. */
static strata_status check_recording(const strata_service *service, service_request_kind kind,
                                     const strata_send_options *send, const char *call)
{
    const strata_service_graph *graph = send->graph;
    if (!graph)
        return STRATA_SUCCESS;
    if (graph->service != service)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: graph \"%s\" is another service's", call, graph->name);
    if (!service_graph_takes(kind))
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "%s: such a request cannot be recorded; send it before or after the graph's launch", call);
    if (send->timeout || send->callback)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "%s: a recorded request has neither a time limit nor a callback; set those of the launch",
                           call);
    return send->priority || send->hint
               ? strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "%s: a recorded request has neither a priority nor a hint, since the launch's stream does "
                             "its work; set those of the launch",
                             call)
               : STRATA_SUCCESS;
}

static uint64_t this_thread(void)
{
    const strata_thread *thread = strata_thread_self();
    return thread ? thread->serial : 0;
}

strata_status service_request_make(strata_service *service, service_request_kind kind, const strata_send_options *given,
                                   const char *call, strata_future **out)
{
    strata_send_options send;
    strata_status status = service_check(service, call);
    if (status == STRATA_SUCCESS)
        status = service_check_open(service);
    if (status == STRATA_SUCCESS)
        status = read_options(given, &send);
    if (status == STRATA_SUCCESS)
        status = check_recording(service, kind, &send, call);
    if (status != STRATA_SUCCESS)
        return status;
    strata_future *request = service_future_make(service, kind);
    if (!request)
        return strata_fail_host_memory("a request");
    request->forks = service->forks;
    request->into = send.graph;
    request->priority = send.priority;
    request->hint = send.hint;
    request->sender = send.sender ? send.sender : this_thread();
    request->timeout = send.timeout;
    if (send.callback) {
        request->callback_data = send.data;
        atomic_store_explicit(&request->has_callback, true, memory_order_relaxed);
        atomic_store_explicit(&request->callback, send.callback, memory_order_relaxed);
    }
    if (send.timeout && __builtin_add_overflow(service_clock(), send.timeout, &request->deadline))
        request->deadline = 0;
    *out = request;
    return STRATA_SUCCESS;
}

/* ---- ends ---- */

/* Releases what the request held, and what its work gave and no answer took. */
static void let_go(strata_future *request)
{
    if (request->recorded_graph)
        service_graph_unhold(request->recorded_graph);
    strata_ref_release(request->ref);
    strata_ref_release(request->to);
    strata_host_buffer_release(request->buffer);
    service_answer_release(&request->result);
    for (size_t i = 0; i < request->launch.count; i++)
        strata_ref_release(request->launch.arguments[i].ref);
    service_blas_drop(request->blas);
    strata_host_free(request->launch.arguments);
    strata_host_free(request->launch.entry);
    strata_host_free(request->failed);
    strata_host_free(request->name);
    strata_host_free(request->image);
    request->recorded_graph = NULL;
    request->ref = NULL;
    request->buffer = NULL;
}

void service_request_drop(strata_future *request)
{
    strata_error_suppress_begin(); /* the caller returns an error of its own */
    let_go(request);
    service_future_unhold(request);
    strata_error_suppress_end(false);
}

/* Waits until the request is answered: another thread that claimed it reads what it holds until it has published. */
static void wait_for_answer(const strata_future *request)
{
    unsigned spins = 0;
    while (service_future_state(request) != SERVICE_ANSWERED)
        strata_backoff(&spins);
}

/* The request no longer counts towards the limit of the queue. */
static void give_place(strata_future *request)
{
    if (request->placed)
        service_mailbox_unreserve(&request->service->mailbox);
    request->placed = false;
}

void service_request_finish(strata_future *request)
{
    strata_service *service = request->service;
    wait_for_answer(request);
    if (request->begun_at)
        atomic_fetch_sub_explicit(&service->in_flight, 1, memory_order_relaxed);
    if (request->deadline)
        service_timer_remove(&service->timer, request);
    if (request->kind == SERVICE_MAKE_GRAPH && request->recorded_graph)
        service_graph_drop_recording(request->recorded_graph);
    let_go(request);
    give_place(request);
    service_future_unhold(request);
}

/* ---- answers ---- */

static void count(strata_service *service, const strata_answer *answer)
{
    if (answer->status == STRATA_SUCCESS) {
        atomic_fetch_add_explicit(&service->done, 1, memory_order_relaxed);
        return;
    }
    atomic_fetch_add_explicit(&service->failed, 1, memory_order_relaxed);
    if (answer->status == STRATA_ERROR_TIMEOUT)
        atomic_fetch_add_explicit(&service->timeouts, 1, memory_order_relaxed);
    if (answer->status == STRATA_ERROR_CANCELLED)
        atomic_fetch_add_explicit(&service->cancelled, 1, memory_order_relaxed);
}

/* Without host memory the answer has no record. */
static strata_error *copy_error(const strata_error *error)
{
    strata_error *copy = error ? strata_host_zalloc(sizeof *copy) : NULL;
    if (copy)
        *copy = *error;
    return copy;
}

/* The driver's failure says neither that the context is lost nor what to do about it. */
static void tell_loss(strata_error *error)
{
    const size_t length = strlen(error->message);
    snprintf(error->message + length, sizeof error->message - length,
             "; the context is lost, and made again: make new references and modules");
}

static void publish(strata_future *request, strata_answer *answer, const strata_error *error)
{
    strata_service *service = request->service;
    strata_error *copy = copy_error(error);
    answer->error = copy;
    answer->failure = error ? service_classify(service, error) : STRATA_FAILURE_NONE;
    if (copy && answer->failure == STRATA_FAILURE_POISONED && copy->status != STRATA_ERROR_POISONED)
        tell_loss(copy);
    answer->generation = strata_device_state_generation(service->state);
    count(service, answer);
    service_future_publish(request, answer);
}

/* The request's handle of its buffer, for the answer. For the thread that has claimed the request. */
static strata_host_buffer *give_buffer(strata_future *request)
{
    strata_host_buffer *buffer = request->buffer;
    request->buffer = NULL;
    return buffer;
}

static void fail(strata_future *request, const strata_error *error, bool is_over)
{
    if (!service_future_claim(request))
        return;
    strata_answer answer = {
        .status = error->status, .returned = request->result.returned, .buffer = give_buffer(request)};
    if (is_over)
        give_place(request);
    publish(request, &answer, error);
}

/* Answers with success, unless the time limit is over: the timer's thread may not have come to it yet. */
void service_request_succeed(strata_future *request)
{
    static const strata_error late = {.status = STRATA_ERROR_TIMEOUT,
                                      .message =
                                          "the request was complete after its time limit, and its result is dropped"};
    const strata_service *service = request->service;
    if (request->deadline && service_clock() >= request->deadline) {
        fail(request, &late, true);
        return;
    }
    if (!service_future_claim(request))
        return;
    strata_answer answer = request->result;
    request->result = (strata_answer){0};
    if (!answer.buffer)
        answer.buffer = give_buffer(request);
    answer.status = STRATA_SUCCESS;
    if (service->recorder)
        service_recorder_answer(service->recorder, request, &answer);
    give_place(request);
    publish(request, &answer, NULL);
}

void service_request_fail(strata_future *request, const strata_error *error)
{
    fail(request, error, true);
}

void service_request_note_failure(strata_future *request, const strata_error *error)
{
    request->failed = copy_error(error);
    if (!request->failed)
        fail(request, error, false); /* before its turn: there is no memory to wait with */
}

/* Answers a request that is not finished. The work of one that has begun goes on, with its buffer. */
static void answer_unfinished(strata_future *request, const strata_error *of_queued, const strata_error *of_begun)
{
    const bool queued = service_future_claim_queued(request);
    if (!queued && !service_future_claim(request))
        return;
    const strata_error *error = queued ? of_queued : of_begun;
    strata_answer answer = {.status = error->status, .buffer = queued ? give_buffer(request) : NULL};
    publish(request, &answer, error);
}

void service_request_give_up(strata_future *request, const strata_error *error)
{
    answer_unfinished(request, error, error);
}

void service_request_expire(strata_future *request)
{
    strata_error of_queued = {.status = STRATA_ERROR_TIMEOUT};
    static const strata_error of_begun = {
        .status = STRATA_ERROR_TIMEOUT,
        .message = "the request reached its time limit; what it began goes on, and its result is dropped"};
    char last[SERVICE_FAILURE_TEXT];
    service_tell_last_failure(request->service, last, sizeof last);
    snprintf(of_queued.message, sizeof of_queued.message, "the request reached its time limit before it began%s%s",
             last[0] ? ": the device service has no context yet" : "", last);
    answer_unfinished(request, &of_queued, &of_begun);
}

strata_status strata_future_cancel(strata_future *future)
{
    if (!future)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_future_cancel: future is NULL");
    const strata_status status = service_check_fork(future->forks);
    if (status != STRATA_SUCCESS)
        return status;
    if (!service_future_claim_queued(future))
        return strata_fail(STRATA_ERROR_BUSY, "the request has begun, or is answered; wait for its answer");
    const int cancel = strata_cancel_forbid(); /* waiting threads, and the service, wait for the answer */
    strata_service *service = future->service; /* exists: the request is not finished before it is answered */
    const strata_error error = {.status = STRATA_ERROR_CANCELLED, .message = "the request was cancelled"};
    strata_answer answer = {.status = STRATA_ERROR_CANCELLED, .buffer = give_buffer(future)};
    service_future_hold(future); /* another thread may release it as soon as it is answered */
    service_mailbox_wake(&service->mailbox);
    publish(future, &answer, &error);
    service_future_unhold(future);
    strata_cancel_restore(cancel);
    return STRATA_SUCCESS;
}

/* ---- submission ---- */

static strata_status record(strata_future *request, strata_future **out)
{
    const strata_status status = service_graph_add(request->into, request, out != NULL);
    if (status != STRATA_SUCCESS)
        service_request_drop(request);
    return status;
}

strata_status service_request_submit(strata_future *request, strata_future **out)
{
    strata_service *service = request->service;
    if (request->into)
        return record(request, out);
    if (out)
        service_future_hold(request);
    strata_status status = service_mailbox_reserve(&service->mailbox);
    request->placed = status == STRATA_SUCCESS;
    if (request->placed && request->deadline)
        status = service_timer_add(&service->timer, request);
    if (status == STRATA_SUCCESS) {
        if (out)
            *out = request; /* the answer may come before this call returns */
        service_mailbox_put(&service->mailbox, request);
        return STRATA_SUCCESS;
    }
    give_place(request);
    if (out)
        service_future_unhold(request);
    service_request_drop(request);
    return status;
}
