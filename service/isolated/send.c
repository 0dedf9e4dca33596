/* What the worker is sent: requests in the order in which they began, and word of what has ended. */
#include "core/base/error.h"
#include "runtime/references.h"
#include "service/graph.h"
#include "service/isolated/descriptors.h"
#include "service/isolated/isolated.h"

#include <stdio.h>
#include <string.h>

/* Every function that sends a kind of request: SUCCESS, all of it is sent; NOT_READY without a record, there is no room
 * now; else why it fails. */

/* Adds an operation of a request, and makes room for its frame. *number is the operation's. NOT_READY: no room for a
 * frame. */
static strata_status add(service_client *client, strata_future *request, const isolated_operation *operation,
                         size_t payload, uint64_t *number)
{
    if (!wire_reserve(&client->out, payload))
        return STRATA_ERROR_NOT_READY;
    if (!client->operations.count)
        client->heard_at = service_clock(); /* until now it had nothing to say */
    *number = isolated_operation_add(&client->operations, operation);
    if (!*number)
        return strata_fail_host_memory("a request to the worker");
    request->number++;
    client->short_count += request->hint == STRATA_HINT_SHORT;
    return STRATA_SUCCESS;
}

static strata_status add_whole(service_client *client, strata_future *request, size_t payload, uint64_t *number)
{
    return add(client, request, &(isolated_operation){.request = request, .slot = NO_SLOT}, payload, number);
}

/* ---- shared buffers ---- */

/* A free number for a shared buffer; 0: none is left. */
static uint32_t take_buffer_number(service_client *client)
{
    for (size_t i = client->buffer_hint; i < BUFFER_WORDS; i++)
        if (~client->buffers[i]) {
            const unsigned bit = (unsigned)__builtin_ctzll(~client->buffers[i]);
            client->buffers[i] |= UINT64_C(1) << bit;
            client->buffer_hint = i;
            return (uint32_t)(64 * i + bit);
        }
    return 0;
}

static void give_buffer_number(service_client *client, uint32_t number)
{
    client->buffers[number / 64] &= ~(UINT64_C(1) << number % 64);
    if (number / 64 < client->buffer_hint)
        client->buffer_hint = number / 64;
}

static strata_status put_memory(service_client *client, const isolated_memory *memory, uint32_t number)
{
    const wire_buffer payload = {.bytes = memory->size};
    if (!wire_may_put_descriptor(&client->out) || !wire_reserve(&client->out, sizeof payload))
        return STRATA_ERROR_NOT_READY;
    wire_put_descriptor(&client->out, WIRE_BUFFER, number, &payload, sizeof payload, memory->fd, false);
    return STRATA_SUCCESS;
}

/* Tells the worker of the buffer, once. BUSY, without a record: it cannot be shared. */
static strata_status share(service_client *client, isolated_buffer *buffer)
{
    if (buffer->worker == client->worker)
        return STRATA_SUCCESS;
    const uint32_t number = take_buffer_number(client);
    if (!number)
        return STRATA_ERROR_BUSY;
    const strata_status status = put_memory(client, &buffer->memory, number);
    if (status != STRATA_SUCCESS) {
        give_buffer_number(client, number);
        return status;
    }
    buffer->number = number;
    buffer->worker = client->worker;
    return STRATA_SUCCESS;
}

static strata_status open_staging(service_client *client)
{
    if (client->staging.memory.bytes)
        return STRATA_SUCCESS;
    strata_status status = isolated_staging_open(&client->staging);
    if (status != STRATA_SUCCESS)
        return status;
    status = put_memory(client, &client->staging.memory, 0);
    if (status != STRATA_SUCCESS)
        isolated_staging_close(&client->staging);
    return status;
}

/* ---- copies ---- */

static wire_kind copy_kind(const strata_future *request)
{
    return request->kind == SERVICE_COPY_TO_HOST ? WIRE_COPY_TO_HOST : WIRE_COPY_FROM_HOST;
}

static strata_status copy_directly(service_client *client, strata_future *request, const isolated_remote *remote,
                                   const isolated_buffer *buffer)
{
    const wire_copy payload = {.send = isolated_send_of(request),
                               .ref = remote->number,
                               .offset = request->ref->offset,
                               .bytes = request->ref->bytes,
                               .buffer = buffer->number};
    uint64_t number;
    const strata_status status = add_whole(client, request, sizeof payload, &number);
    if (status == STRATA_SUCCESS)
        wire_put(&client->out, copy_kind(request), number, &payload, sizeof payload, NULL, 0);
    return status;
}

static strata_status copy_chunk(service_client *client, strata_future *request, const isolated_remote *remote)
{
    unsigned char *host = strata_host_buffer_memory(request->buffer);
    isolated_operation operation = {.request = request, .offset = client->sent};
    uint64_t number;
    operation.slot = isolated_staging_take(&client->staging, request->ref->bytes - client->sent, &operation.bytes);
    if (operation.slot == NO_SLOT)
        return STRATA_ERROR_NOT_READY;
    const size_t at = isolated_staging_offset(operation.slot);
    const wire_copy payload = {.send = isolated_send_of(request),
                               .ref = remote->number,
                               .offset = request->ref->offset + client->sent,
                               .bytes = operation.bytes,
                               .buffer_offset = at};
    const strata_status status = add(client, request, &operation, sizeof payload, &number);
    if (status != STRATA_SUCCESS) {
        isolated_staging_give(&client->staging, operation.slot);
        return status;
    }
    if (request->kind == SERVICE_COPY_FROM_HOST)
        memcpy((unsigned char *)client->staging.memory.bytes + at, host + client->sent, operation.bytes);
    wire_put(&client->out, copy_kind(request), number, &payload, sizeof payload, NULL, 0);
    client->sent += operation.bytes;
    return STRATA_SUCCESS;
}

static strata_status copy_staged(service_client *client, strata_future *request, const isolated_remote *remote)
{
    strata_status status = open_staging(client);
    while (status == STRATA_SUCCESS && client->sent < request->ref->bytes)
        status = copy_chunk(client, request, remote);
    return status;
}

static strata_status send_copy(service_client *client, strata_future *request)
{
    const isolated_remote *remote;
    isolated_buffer *buffer = isolated_buffer_of(request->buffer);
    strata_status status = isolated_find_remote(client, request->ref, &remote);
    if (status == STRATA_SUCCESS && request->kind == SERVICE_COPY_TO_HOST && !client->sent)
        status = service_check_unshared(request->buffer);
    if (status != STRATA_SUCCESS)
        return status;
    if (!buffer || buffer->link != client->link || client->sent)
        return copy_staged(client, request, remote);
    status = share(client, buffer);
    if (status == STRATA_ERROR_BUSY)
        return copy_staged(client, request, remote);
    return status == STRATA_SUCCESS ? copy_directly(client, request, remote, buffer) : status;
}

/* ---- other requests ---- */

static strata_status send_packed(service_client *client, strata_future *request)
{
    isolated_frame frame;
    uint64_t number;
    strata_status status = isolated_pack(client, request, &frame);
    if (status == STRATA_SUCCESS)
        status = add_whole(client, request, frame.bytes + frame.text_bytes, &number);
    if (status == STRATA_SUCCESS)
        wire_put(&client->out, frame.kind, number, &frame.payload, frame.bytes, frame.text, frame.text_bytes);
    return status;
}

/* Sends a frame with a file of that content. */
static strata_status send_file(service_client *client, strata_future *request, wire_kind kind, const void *payload,
                               size_t payload_bytes, const void *content, size_t bytes)
{
    uint64_t number;
    int fd;
    if (!wire_may_put_descriptor(&client->out) || !wire_reserve(&client->out, payload_bytes))
        return STRATA_ERROR_NOT_READY;
    strata_status status = isolated_memory_of(content, bytes, &fd);
    if (status != STRATA_SUCCESS)
        return status;
    status = add_whole(client, request, payload_bytes, &number);
    if (status == STRATA_SUCCESS)
        wire_put_descriptor(&client->out, kind, number, payload, payload_bytes, fd, true);
    else
        isolated_descriptor_close(fd);
    return status;
}

static strata_status send_load(service_client *client, strata_future *request)
{
    const wire_load payload = {.send = isolated_send_of(request), .bytes = request->image_bytes};
    return send_file(client, request, WIRE_LOAD, &payload, sizeof payload, request->image, request->image_bytes);
}

/* Fills `parts` with the frames of what was recorded, which have at most WIRE_GRAPH_LIMIT bytes. */
static strata_status pack_parts(const service_client *client, const strata_service_graph *graph, wire_out *parts)
{
    isolated_frame frame;
    size_t number = 0;
    for (const strata_future *part = graph->parts.first; part; part = part->next, number++) {
        if (isolated_pack(client, part, &frame) != STRATA_SUCCESS)
            return service_graph_fail_part(number);
        if (!wire_reserve(parts, frame.bytes + frame.text_bytes))
            return strata_fail_host_memory("the requests of a graph");
        wire_put(parts, frame.kind, 0, &frame.payload, frame.bytes, frame.text, frame.text_bytes);
    }
    return STRATA_SUCCESS;
}

static strata_status send_parts(service_client *client, strata_future *request, const wire_out *parts)
{
    strata_service_graph *graph = request->recorded_graph;
    wire_graph payload = {.send = isolated_send_of(request), .graph = client->graphs + 1, .bytes = parts->end};
    isolated_remote *remote = isolated_remote_new(client->link, payload.graph, client->worker, true);
    if (!remote)
        return strata_fail_host_memory("a graph of requests");
    snprintf(payload.name, sizeof payload.name, "%s", graph->name);
    const strata_status status =
        send_file(client, request, WIRE_MAKE_GRAPH, &payload, sizeof payload, parts->bytes, parts->end);
    if (status != STRATA_SUCCESS) {
        isolated_remote_free(remote);
        return status;
    }
    client->graphs++;
    graph->remote = remote;
    graph->end_remote = isolated_remote_release;
    return STRATA_SUCCESS;
}

static strata_status send_graph(service_client *client, strata_future *request)
{
    strata_service_graph *graph = request->recorded_graph;
    wire_out parts = {.bound = WIRE_GRAPH_LIMIT};
    if (!wire_may_put_descriptor(&client->out) || !wire_reserve(&client->out, sizeof(wire_graph)))
        return STRATA_ERROR_NOT_READY;
    strata_status status = pack_parts(client, graph, &parts);
    if (status == STRATA_SUCCESS)
        status = send_parts(client, request, &parts);
    wire_out_close(&parts);
    if (status == STRATA_ERROR_IO || status == STRATA_ERROR_OUT_OF_HOST_MEMORY)
        return service_graph_reopen(request);
    graph->begun = true;
    return status == STRATA_SUCCESS ? STRATA_SUCCESS : service_graph_fail(graph);
}

static strata_status send_nothing(service_client *client, strata_future *request)
{
    const wire_send payload = isolated_send_of(request);
    uint64_t number;
    const strata_status status = add_whole(client, request, sizeof payload, &number);
    if (status == STRATA_SUCCESS)
        wire_put(&client->out, WIRE_NOTHING, number, &payload, sizeof payload, NULL, 0);
    return status;
}

static strata_status send_by_kind(service_client *client, strata_future *request)
{
    switch (request->kind) {
    case SERVICE_ALLOCATE:
    case SERVICE_LAUNCH:
    case SERVICE_BLAS:
    case SERVICE_COPY:
    case SERVICE_FILL:
    case SERVICE_PLAY_GRAPH:
        return send_packed(client, request);
    case SERVICE_COPY_TO_HOST:
    case SERVICE_COPY_FROM_HOST:
        return send_copy(client, request);
    case SERVICE_LOAD:
        return send_load(client, request);
    case SERVICE_MAKE_GRAPH:
        return send_graph(client, request);
    default:
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "an isolated device service has no such request");
    }
}

/* ---- what waits ---- */

/* Sends the first request that waits; whether it is done with here. */
static bool send_first(service_client *client)
{
    strata_future *request = client->waiting.first;
    const bool answered = service_future_state(request) == SERVICE_ANSWERED; /* at its time limit */
    strata_status status = STRATA_SUCCESS;
    if (answered && !request->number)
        return true;
    if (!request->failed && !answered) {
        status = send_by_kind(client, request);
        if (status == STRATA_SUCCESS || status == STRATA_ERROR_NOT_READY)
            return status == STRATA_SUCCESS;
        service_request_note_failure(request, strata_error_in_force());
    }
    return send_nothing(client, request) != STRATA_ERROR_NOT_READY;
}

static void send_waiting(strata_service *service)
{
    service_client *client = service->client;
    while (client->waiting.first && send_first(client)) {
        strata_future *request = service_list_take(&client->waiting);
        client->sent = 0;
        if (request->number) {
            isolated_note_sent(client, request);
            continue;
        }
        isolated_answer(request);
        service_request_finish(request);
    }
}

/* ---- what has ended ---- */

static uint64_t take_released(service_client *client)
{
    isolated_remote *remote = client->released;
    const uint64_t number = remote->number;
    client->released = remote->next;
    isolated_remote_free(remote);
    return number;
}

static bool send_released(service_client *client)
{
    uint64_t numbers[WIRE_RELEASE_LIMIT];
    while (client->released) {
        size_t count = 0;
        if (!wire_reserve(&client->out, sizeof numbers))
            return false;
        if (client->released->is_graph) {
            wire_put(&client->out, WIRE_GRAPH_END, take_released(client), NULL, 0, NULL, 0);
            continue;
        }
        while (client->released && !client->released->is_graph && count < WIRE_RELEASE_LIMIT)
            numbers[count++] = take_released(client);
        wire_put(&client->out, WIRE_RELEASE, 0, numbers, count * sizeof numbers[0], NULL, 0);
    }
    return true;
}

/* A descriptor that is not sent yet stays open: its number could be another file's. */
static bool send_unshared(service_client *client)
{
    for (isolated_buffer *next; client->unshared; client->unshared = next) {
        if (wire_has_descriptor(&client->out, client->unshared->memory.fd) || !wire_reserve(&client->out, 0))
            return false;
        next = client->unshared->next;
        wire_put(&client->out, WIRE_BUFFER_END, client->unshared->number, NULL, 0, NULL, 0);
        give_buffer_number(client, client->unshared->number);
        isolated_buffer_free(client->unshared);
    }
    return true;
}

/* Tells the worker what has ended, before the requests, which may need the memory. What waited for room comes first;
 * the link is emptied after it, as it wakes the service's thread for the first end only. */
static bool send_ended(service_client *client)
{
    if (!send_released(client) || !send_unshared(client))
        return false;
    isolated_link_take(client->link, &client->released, &client->unshared);
    return send_released(client) && send_unshared(client);
}

void isolated_send(strata_service *service)
{
    service_client *client = service->client;
    if (client->socket < 0)
        return;
    if (send_ended(client))
        send_waiting(service);
    wire_flush(&client->out, client->socket); /* a worker that is gone is met by isolated_receive */
}
