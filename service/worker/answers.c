/* Answers: frames for the client, from any thread, and the requests that they answer. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "service/service.h"
#include "service/worker/worker.h"

#include <errno.h>
#include <sys/eventfd.h>

/* ---- frames ---- */

static void ring(const worker *self)
{
    while (eventfd_write(self->wake_fd, 1) < 0 && errno == EINTR)
        ;
}

void worker_say(worker *self, wire_kind kind, uint64_t number, const void *payload, size_t bytes)
{
    strata_lock_take(&self->lock);
    if (wire_reserve(&self->gathered, bytes))
        wire_put(&self->gathered, kind, number, payload, bytes, NULL, 0);
    else
        self->broken = true;
    self->lost = self->lost || kind == WIRE_LOST;
    const bool asleep = self->sleeping;
    self->sleeping = false;
    strata_lock_release(&self->lock);
    if (asleep)
        ring(self);
}

void worker_say_error(worker *self, wire_kind kind, uint64_t number, const strata_error *error)
{
    wire_error packed;
    wire_pack_error(error, &packed);
    worker_say(self, kind, number, &packed, sizeof packed);
}

/* ---- answers ---- */

worker_request *worker_request_make(worker *self, uint64_t number)
{
    worker_request *request = strata_host_zalloc(sizeof *request);
    if (!request) {
        strata_fail_host_memory("a request");
        return NULL;
    }
    *request = (worker_request){.self = self, .number = number};
    return request;
}

/* What was allocated is the client's from here on, by its number. */
static strata_status keep(worker *self, strata_answer *answer, wire_done *done)
{
    if (!answer->ref)
        return STRATA_SUCCESS;
    strata_lock_take(&self->lock);
    done->ref = worker_refs_add(&self->refs, answer->ref);
    strata_lock_release(&self->lock);
    if (!done->ref)
        return strata_fail_host_memory("a reference of the worker");
    answer->ref = NULL;
    return STRATA_SUCCESS;
}

static void tell_failure(worker *self, uint64_t number, const strata_answer *answer)
{
    const strata_error without_record = {.status = answer->status,
                                         .message = "the request failed; out of host memory for the reason"};
    worker_say_error(self, WIRE_REFUSED, number, answer->error ? answer->error : &without_record);
}

void worker_answer(strata_future *future, void *data)
{
    const worker_request request = *(worker_request *)data;
    strata_answer answer;
    wire_done done = {0};
    strata_host_free(data);
    strata_future_take(future, &answer);
    done.module = answer.module;
    if (answer.status != STRATA_SUCCESS)
        tell_failure(request.self, request.number, &answer);
    else if (keep(request.self, &answer, &done) != STRATA_SUCCESS)
        worker_say_error(request.self, WIRE_REFUSED, request.number, strata_error_in_force());
    else
        worker_say(request.self, WIRE_DONE, request.number, &done, sizeof done);
    service_answer_release(&answer);
}

/* ---- calls ---- */

strata_status worker_call(worker *self, const strata_send_options *send,
                          strata_status (*function)(strata_runtime *runtime, CUstream stream, void *data), void *data,
                          strata_future_callback answered, void *answered_data)
{
    strata_send_options options = *send;
    strata_future *request;
    options.callback = answered;
    options.data = answered_data;
    const strata_status status = service_request_make(self->service, SERVICE_RUN, &options, "strata-worker", &request);
    if (status != STRATA_SUCCESS)
        return status;
    request->operation = (strata_service_operation){.function = function, .data = data};
    request->raw = true;
    return service_request_submit(request, NULL);
}

static strata_status fail_again(strata_runtime *runtime, CUstream stream, void *data)
{
    strata_error *error = data;
    (void)runtime;
    (void)stream;
    return strata_error_raise_again(error);
}

/* A refusal with its reason. */
typedef struct refusal {
    strata_error error;
    worker_request *request;
} refusal;

static void end_refusal(strata_future *future, void *data)
{
    refusal *refused = data;
    worker_answer(future, refused->request);
    strata_host_free(refused);
}

static bool refuse_in_turn(worker *self, uint64_t number, const wire_send *send, const strata_error *error)
{
    const strata_send_options options = {
        .priority = (strata_priority)send->priority, .hint = (strata_service_hint)send->hint, .sender = send->sender};
    refusal *refused = strata_host_zalloc(sizeof *refused);
    if (!refused)
        return false;
    refused->error = *error;
    refused->request = worker_request_make(self, number);
    if (refused->request &&
        worker_call(self, &options, fail_again, &refused->error, end_refusal, refused) == STRATA_SUCCESS)
        return true;
    strata_host_free(refused->request);
    strata_host_free(refused);
    return false;
}

void worker_refuse(worker *self, uint64_t number, const wire_send *send, const strata_error *error)
{
    if (!refuse_in_turn(self, number, send, error))
        worker_say_error(self, WIRE_REFUSED, number, error);
}

strata_send_options worker_first(void)
{
    return (strata_send_options){.priority = STRATA_PRIORITY_HIGH, .sender = UINT64_MAX};
}

/* Without the lock. */
wire_result worker_flush(worker *self)
{
    if (wire_out_is_empty(&self->sending)) {
        strata_lock_take(&self->lock);
        const wire_out gathered = self->gathered;
        self->gathered = self->sending;
        self->sending = gathered;
        strata_lock_release(&self->lock);
    }
    return wire_flush(&self->sending, self->socket);
}
