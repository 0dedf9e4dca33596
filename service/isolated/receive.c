/* What the worker says. It may be out of order, in any sense: what cannot be ends it. */
#include "core/base/error.h"
#include "service/graph.h"
#include "service/isolated/isolated.h"

#include <string.h>

enum { READS = 32 }; /* before requests are begun again */

/* ---- requests under way ---- */

void isolated_note_sent(service_client *client, strata_future *request)
{
    request->previous = client->under_way.last;
    service_list_add(&client->under_way, request);
}

static void take_from_under_way(service_client *client, strata_future *request)
{
    service_list *list = &client->under_way;
    *(request->previous ? &request->previous->next : &list->first) = request->next;
    *(request->next ? &request->next->previous : &list->last) = request->previous;
}

/* ---- the ends of operations ---- */

void isolated_answer(strata_future *request)
{
    if (request->failed)
        service_request_fail(request, request->failed);
    else
        service_request_succeed(request);
}

void isolated_operation_finish(strata_service *service, const isolated_operation *operation)
{
    service_client *client = service->client;
    strata_future *request = operation->request;
    if (operation->slot != NO_SLOT)
        isolated_staging_give(&client->staging, operation->slot);
    client->short_count -= request->hint == STRATA_HINT_SHORT;
    if (--request->number || client->waiting.first == request)
        return;
    take_from_under_way(client, request);
    isolated_answer(request);
    service_request_finish(request);
}

static bool may_be_written(const service_client *client, const strata_future *request)
{
    const isolated_buffer *buffer =
        request->kind == SERVICE_COPY_TO_HOST && request->buffer ? isolated_buffer_of(request->buffer) : NULL;
    return buffer && buffer->link == client->link;
}

/* `keeps`: buffers that the worker shares may still be written. */
static void fail_list(service_client *client, service_list *list, const strata_error *why, bool keeps)
{
    for (strata_future *request; (request = service_list_take(list));) {
        const strata_error *reason = request->failed ? request->failed : why;
        if (keeps && may_be_written(client, request)) {
            service_request_give_up(request, reason);
            service_list_add(&client->late, request);
            continue;
        }
        service_request_fail(request, reason);
        service_request_finish(request);
    }
}

/* In the order in which they began, which is that of each sender. */
void isolated_fail_all(strata_service *service, const strata_error *why, bool over)
{
    service_client *client = service->client;
    isolated_operation operation;
    uint32_t from = 0;
    while (isolated_operation_take_next(&client->operations, &from, &operation))
        ;
    fail_list(client, &client->under_way, why, !over);
    fail_list(client, &client->waiting, why, false);
    client->sent = client->short_count = 0;
}

void isolated_finish_late(service_client *client)
{
    for (strata_future *request; (request = service_list_take(&client->late));)
        service_request_finish(request);
}

/* ---- answers ---- */

static void note_failure(strata_future *request, const strata_error *why)
{
    if (!request->failed && service_future_state(request) != SERVICE_ANSWERED)
        service_request_note_failure(request, why);
}

static void take_ref(strata_service *service, strata_future *request, uint64_t number)
{
    service_client *client = service->client;
    if (isolated_remote_make(service, client->link, request, number, &request->result.ref) == STRATA_SUCCESS)
        return;
    note_failure(request, strata_error_in_force());
    if (wire_reserve(&client->out, sizeof number))
        wire_put(&client->out, WIRE_RELEASE, 0, &number, sizeof number, NULL, 0);
}

/* Each worker numbers its modules from 1 on: a number of one before it is to be known as that. */
static void take_module(strata_service *service, strata_future *request, uint64_t number)
{
    request->result.module = isolated_module_number(service->client->worker, number);
}

/* A graph is made also for a request that has reached its time limit: its launches may have been sent. An end that
 * failed here has no remote graph, or let go of its own, whatever the worker says of it. */
static void take_graph(const strata_future *request)
{
    strata_service_graph *graph = request->recorded_graph;
    if (graph && graph->remote)
        service_graph_note_made(graph);
}

/* A late answer leaves the bytes as they are: they are the program's again. */
static void take_bytes(const service_client *client, const isolated_operation *operation)
{
    const strata_future *request = operation->request;
    if (operation->slot == NO_SLOT || service_future_state(request) == SERVICE_ANSWERED)
        return;
    memcpy((unsigned char *)strata_host_buffer_memory(request->buffer) + operation->offset,
           (const unsigned char *)client->staging.memory.bytes + isolated_staging_offset(operation->slot),
           operation->bytes);
}

static void count_bytes(strata_service *service, const isolated_operation *operation)
{
    const strata_future *request = operation->request;
    _Atomic uint64_t *counter =
        request->kind == SERVICE_COPY_TO_HOST ? &service->bytes_to_host : &service->bytes_from_host;
    const size_t bytes = operation->slot == NO_SLOT ? strata_host_buffer_bytes(request->buffer) : operation->bytes;
    if (!request->failed)
        atomic_fetch_add_explicit(counter, bytes, memory_order_relaxed);
}

/* An answer to an allocation or a load has a number, unless that failed here. */
static const strata_error nothing_named = {.status = STRATA_ERROR_POISONED,
                                           .message = "the worker of the isolated device service said that it had "
                                                      "made memory or a module, and did not say which"};

static void take_number(strata_service *service, strata_future *request, uint64_t number,
                        void (*take)(strata_service *service, strata_future *request, uint64_t number))
{
    if (number)
        take(service, request, number);
    else
        note_failure(request, &nothing_named);
}

static bool take_done(strata_service *service, uint64_t number, const wire_done *done)
{
    isolated_operation operation;
    if (!isolated_operation_take(&service->client->operations, number, &operation))
        return false;
    strata_future *request = operation.request;
    switch (request->kind) {
    case SERVICE_ALLOCATE:
        take_number(service, request, done->ref, take_ref);
        break;
    case SERVICE_MAKE_GRAPH:
        take_graph(request);
        break;
    case SERVICE_COPY_TO_HOST:
        take_bytes(service->client, &operation);
        count_bytes(service, &operation);
        break;
    case SERVICE_COPY_FROM_HOST:
        count_bytes(service, &operation);
        break;
    case SERVICE_LOAD:
        take_number(service, request, done->module, take_module);
        break;
    default:
        break;
    }
    isolated_operation_finish(service, &operation);
    return true;
}

/* A failure that ends the context is met by all that has begun, in their order. */
static bool take_refusal(strata_service *service, uint64_t number, const wire_error *packed)
{
    strata_error error;
    isolated_operation operation;
    if (!isolated_operation_take(&service->client->operations, number, &operation))
        return false;
    wire_unpack_error(packed, &error);
    note_failure(operation.request, &error);
    isolated_operation_finish(service, &operation);
    service_judge(service, &error);
    return true;
}

/* ---- facts ---- */

static void take_facts(strata_service *service, uint64_t free_bytes, uint64_t total_bytes, uint32_t active_streams)
{
    service_client *client = service->client;
    atomic_store_explicit(&client->free_bytes, free_bytes, memory_order_relaxed);
    atomic_store_explicit(&client->total_bytes, total_bytes, memory_order_relaxed);
    atomic_store_explicit(&service->active_streams, active_streams, memory_order_relaxed);
}

static bool take_ready(strata_service *service, const wire_ready *ready)
{
    service->client->ready = true;
    atomic_store_explicit(&service->compute_major, ready->compute_major, memory_order_relaxed);
    atomic_store_explicit(&service->compute_minor, ready->compute_minor, memory_order_relaxed);
    take_facts(service, ready->free_bytes, ready->total_bytes, 0);
    return ready->version == WIRE_VERSION;
}

static bool take_frame(strata_service *service, const wire_head *head, const unsigned char *payload, size_t bytes)
{
    service_client *client = service->client;
    union {
        wire_done done;
        wire_error error;
        wire_ready ready;
        wire_facts facts;
    } read;
    switch (head->kind) {
    case WIRE_DONE:
        return wire_read(payload, bytes, &read, sizeof read.done, true) && take_done(service, head->number, &read.done);
    case WIRE_REFUSED:
        return wire_read(payload, bytes, &read, sizeof read.error, true) &&
               take_refusal(service, head->number, &read.error);
    case WIRE_READY:
        return wire_read(payload, bytes, &read, sizeof read.ready, true) && take_ready(service, &read.ready);
    case WIRE_FACTS:
        if (!wire_read(payload, bytes, &read, sizeof read.facts, true))
            return false;
        take_facts(service, read.facts.free_bytes, read.facts.total_bytes, read.facts.active_streams);
        return true;
    case WIRE_FAILED:
    case WIRE_LOST:
        if (!wire_read(payload, bytes, &read, sizeof read.error, true))
            return false;
        wire_unpack_error(&read.error, &client->failure);
        client->failed = true;
        return true;
    default:
        return head->kind == WIRE_ALIVE;
    }
}

static bool take_frames(strata_service *service)
{
    wire_head head;
    const unsigned char *payload;
    size_t bytes;
    wire_result result = WIRE_GOES_ON;
    while (!service->lost && (result = wire_next(&service->client->in, &head, &payload, &bytes)) == WIRE_GOES_ON)
        if (!take_frame(service, &head, payload, bytes))
            return false;
    return result != WIRE_GONE;
}

bool isolated_receive(strata_service *service)
{
    service_client *client = service->client;
    for (unsigned i = 0; i < READS && !service->lost; i++) {
        const wire_result result = wire_fill(&client->in, client->socket);
        if (result == WIRE_LATER)
            return true;
        if (result == WIRE_GONE)
            return false;
        client->heard_at = service_clock();
        client->asked_at = 0;
        client->spoke = true;
        if (!take_frames(service))
            return false;
    }
    return true;
}
