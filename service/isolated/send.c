/* What the worker is sent: requests in the order in which they began, and word of what has ended. */
#include "core/base/error.h"
#include "runtime/references.h"
#include "service/isolated/isolated.h"

#include <string.h>
#include <unistd.h>

/* Every function that sends a kind of request: SUCCESS, all of it is sent; NOT_READY without a record, there is no room
 * now; else why it fails. */

static wire_send send_of(const strata_future *request)
{
    return (wire_send){.priority = request->priority, .hint = request->hint, .sender = request->sender};
}

/* NOT_READY: no room for a frame. *number is the operation's. */
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

/* 0: none is left. */
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

static strata_status find_remote(const service_client *client, const strata_ref *ref, const isolated_remote **out)
{
    strata_ref_memory memory;
    const strata_status status = strata_ref_access(ref, &memory);
    *out = isolated_remote_of(ref);
    if (status != STRATA_SUCCESS)
        return status;
    return *out && (*out)->worker == client->worker
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_STALE, "the reference is stale: its worker has ended");
}

static wire_kind copy_kind(const strata_future *request)
{
    return request->kind == SERVICE_COPY_TO_HOST ? WIRE_COPY_TO_HOST : WIRE_COPY_FROM_HOST;
}

static strata_status copy_directly(service_client *client, strata_future *request, const isolated_remote *remote,
                                   const isolated_buffer *buffer)
{
    const wire_copy payload = {.send = send_of(request),
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
    const wire_copy payload = {.send = send_of(request),
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
    strata_status status = find_remote(client, request->ref, &remote);
    if (status == STRATA_SUCCESS && request->kind == SERVICE_COPY_TO_HOST && !client->sent)
        status = service_check_unshared(request->buffer);
    if (status != STRATA_SUCCESS)
        return status;
    if (!buffer || buffer->link != client->link)
        return copy_staged(client, request, remote);
    status = share(client, buffer);
    if (status == STRATA_ERROR_BUSY)
        return copy_staged(client, request, remote);
    return status == STRATA_SUCCESS ? copy_directly(client, request, remote, buffer) : status;
}

/* ---- other requests ---- */

static strata_status send_allocate(service_client *client, strata_future *request)
{
    const wire_allocate payload = {
        .send = send_of(request), .length = request->length, .type = request->type, .raw = request->raw};
    uint64_t number;
    const strata_status status = add_whole(client, request, sizeof payload, &number);
    if (status == STRATA_SUCCESS)
        wire_put(&client->out, WIRE_ALLOCATE, number, &payload, sizeof payload, NULL, 0);
    return status;
}

static strata_status send_load(service_client *client, strata_future *request)
{
    const wire_load payload = {.send = send_of(request), .bytes = request->image_bytes};
    uint64_t number;
    int fd;
    if (!wire_may_put_descriptor(&client->out) || !wire_reserve(&client->out, sizeof payload))
        return STRATA_ERROR_NOT_READY;
    strata_status status = isolated_memory_of(request->image, request->image_bytes, &fd);
    if (status != STRATA_SUCCESS)
        return status;
    status = add_whole(client, request, sizeof payload, &number);
    if (status == STRATA_SUCCESS)
        wire_put_descriptor(&client->out, WIRE_LOAD, number, &payload, sizeof payload, fd, true);
    else
        close(fd);
    return status;
}

static strata_status pack_argument(const service_client *client, const strata_argument *argument, wire_argument *packed)
{
    const isolated_remote *remote;
    *packed = (wire_argument){.kind = argument->kind, .bytes = argument->bytes};
    memcpy(packed->value, argument->value, sizeof packed->value);
    if (argument->kind == STRATA_ARGUMENT_VALUE)
        return STRATA_SUCCESS;
    const strata_status status = find_remote(client, argument->ref, &remote);
    if (status != STRATA_SUCCESS)
        return status;
    packed->ref = remote->number;
    packed->offset = argument->ref->offset;
    packed->ref_bytes = argument->ref->bytes;
    return STRATA_SUCCESS;
}

static strata_status send_launch(service_client *client, strata_future *request)
{
    const service_launch *launch = &request->launch;
    struct {
        wire_launch head;
        wire_argument arguments[STRATA_ARGUMENT_LIMIT];
    } payload = {.head = {.send = send_of(request),
                          .module = launch->module,
                          .shared_bytes = launch->shared_bytes,
                          .argument_count = (uint32_t)launch->count}};
    const size_t entry_bytes = strlen(launch->entry);
    if (entry_bytes > WIRE_TEXT_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the name of the kernel has %zu bytes; at most %d are possible",
                           entry_bytes, WIRE_TEXT_LIMIT);
    payload.head.entry_bytes = (uint32_t)entry_bytes;
    memcpy(payload.head.grid, launch->grid, sizeof payload.head.grid);
    memcpy(payload.head.block, launch->block, sizeof payload.head.block);
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < launch->count && status == STRATA_SUCCESS; i++)
        status = pack_argument(client, &launch->arguments[i], &payload.arguments[i]);
    uint64_t number;
    const size_t bytes = sizeof payload.head + launch->count * sizeof payload.arguments[0];
    if (status == STRATA_SUCCESS)
        status = add_whole(client, request, bytes + entry_bytes, &number);
    if (status == STRATA_SUCCESS)
        wire_put(&client->out, WIRE_LAUNCH, number, &payload, bytes, launch->entry, entry_bytes);
    return status;
}

static void pack_gemm(const strata_blas_gemm_call *call, wire_blas *packed)
{
    packed->order = call->order;
    packed->flags = (call->transpose_a ? WIRE_TRANSPOSE_A : 0) | (call->transpose_b ? WIRE_TRANSPOSE_B : 0);
    packed->m = call->m;
    packed->n = call->n;
    packed->k = call->k;
    packed->count = call->count;
    packed->alpha = call->alpha;
    packed->beta = call->beta;
}

static void pack_gemv(const strata_blas_gemv_call *call, wire_blas *packed)
{
    packed->order = call->order;
    packed->flags = call->transpose ? WIRE_TRANSPOSE_A : 0;
    packed->m = call->m;
    packed->n = call->n;
    packed->alpha = call->alpha;
    packed->beta = call->beta;
}

static void pack_ger(const strata_blas_ger_call *call, wire_blas *packed)
{
    packed->order = call->order;
    packed->m = call->m;
    packed->n = call->n;
    packed->alpha = call->alpha;
}

static void pack_trsm(const strata_blas_trsm_call *call, wire_blas *packed)
{
    packed->order = call->order;
    packed->flags = (call->right ? WIRE_RIGHT : 0) | (call->upper ? WIRE_UPPER : 0) |
                    (call->transpose ? WIRE_TRANSPOSE_A : 0) | (call->unit_diagonal ? WIRE_UNIT_DIAGONAL : 0);
    packed->m = call->m;
    packed->n = call->n;
    packed->alpha = call->alpha;
}

static void pack_call(const strata_service_blas_call *call, wire_blas *packed)
{
    switch (call->routine) {
    case STRATA_BLAS_GEMM:
        pack_gemm(&call->call.gemm, packed);
        break;
    case STRATA_BLAS_GEMV:
        pack_gemv(&call->call.gemv, packed);
        break;
    case STRATA_BLAS_GER:
        pack_ger(&call->call.ger, packed);
        break;
    case STRATA_BLAS_TRSM:
        pack_trsm(&call->call.trsm, packed);
        break;
    case STRATA_BLAS_AXPY:
    case STRATA_BLAS_SCAL:
    case STRATA_BLAS_DOT:
    case STRATA_BLAS_NRM2:
        packed->n = call->call.vectors.n;
        packed->alpha = call->call.vectors.alpha;
        break;
    }
}

static strata_status pack_operand(const service_client *client, const strata_blas_operand *operand,
                                  wire_operand *packed)
{
    const isolated_remote *remote;
    const strata_status status = find_remote(client, operand->ref, &remote);
    if (status == STRATA_SUCCESS)
        *packed = (wire_operand){.ref = remote->number,
                                 .first = operand->ref->offset,
                                 .bytes = operand->ref->bytes,
                                 .type = operand->ref->type,
                                 .offset = operand->offset,
                                 .leading = operand->leading,
                                 .stride = operand->stride,
                                 .step = operand->step};
    return status;
}

static strata_status send_blas(service_client *client, strata_future *request)
{
    wire_blas payload = {.send = send_of(request), .routine = request->blas->routine};
    strata_blas_operand *operands[3];
    uint64_t number;
    const size_t count = service_blas_operands(request->blas, operands);
    strata_status status = STRATA_SUCCESS;
    pack_call(request->blas, &payload);
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status = pack_operand(client, operands[i], &payload.operands[i]);
    if (status == STRATA_SUCCESS)
        status = add_whole(client, request, sizeof payload, &number);
    if (status == STRATA_SUCCESS)
        wire_put(&client->out, WIRE_BLAS, number, &payload, sizeof payload, NULL, 0);
    return status;
}

static strata_status send_nothing(service_client *client, strata_future *request)
{
    const wire_send payload = send_of(request);
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
        return send_allocate(client, request);
    case SERVICE_COPY_TO_HOST:
    case SERVICE_COPY_FROM_HOST:
        return send_copy(client, request);
    case SERVICE_LOAD:
        return send_load(client, request);
    case SERVICE_LAUNCH:
        return send_launch(client, request);
    case SERVICE_BLAS:
        return send_blas(client, request);
    default:
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "an isolated device service has no such request");
    }
}

/* ---- what waits ---- */

/* Whether the first that waits is done with here. */
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
        if (request->number)
            continue;
        isolated_answer(request);
        service_request_finish(request);
    }
}

/* ---- what has ended ---- */

static bool send_released(service_client *client)
{
    uint64_t numbers[WIRE_RELEASE_LIMIT];
    while (client->released) {
        size_t count = 0;
        if (!wire_reserve(&client->out, sizeof numbers))
            return false;
        for (isolated_remote *next; client->released && count < WIRE_RELEASE_LIMIT; client->released = next) {
            next = client->released->next;
            numbers[count++] = client->released->number;
            isolated_remote_free(client->released);
        }
        wire_put(&client->out, WIRE_RELEASE, 0, numbers, count * sizeof numbers[0], NULL, 0);
    }
    return true;
}

static bool send_unshared(service_client *client)
{
    for (isolated_buffer *next; client->unshared; client->unshared = next) {
        if (!wire_reserve(&client->out, 0))
            return false;
        next = client->unshared->next;
        wire_put(&client->out, WIRE_BUFFER_END, client->unshared->number, NULL, 0, NULL, 0);
        give_buffer_number(client, client->unshared->number);
        isolated_buffer_free(client->unshared);
    }
    return true;
}

/* Before the requests, which may need the memory. */
static bool send_ended(service_client *client)
{
    if (!client->released && !client->unshared)
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
