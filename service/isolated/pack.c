/* Requests as frames, which are sent by themselves, or as parts of a graph. */
#include "core/base/error.h"
#include "runtime/references.h"
#include "service/graph.h"
#include "service/isolated/isolated.h"

#include <string.h>

wire_send isolated_send_of(const strata_future *request)
{
    return (wire_send){.priority = request->priority, .hint = request->hint, .sender = request->sender};
}

strata_status isolated_find_remote(const service_client *client, const strata_ref *ref, const isolated_remote **out)
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

static strata_status pack_allocate(const strata_future *request, isolated_frame *frame)
{
    frame->kind = WIRE_ALLOCATE;
    frame->bytes = sizeof frame->payload.allocate;
    frame->payload.allocate = (wire_allocate){
        .send = isolated_send_of(request), .length = request->length, .type = request->type, .raw = request->raw};
    return STRATA_SUCCESS;
}

/* ---- kernels ---- */

static strata_status pack_argument(const service_client *client, const strata_argument *argument, wire_argument *packed)
{
    const isolated_remote *remote;
    *packed = (wire_argument){.kind = argument->kind, .bytes = argument->bytes};
    memcpy(packed->value, argument->value, sizeof packed->value);
    if (argument->kind == STRATA_ARGUMENT_VALUE)
        return STRATA_SUCCESS;
    const strata_status status = isolated_find_remote(client, argument->ref, &remote);
    if (status != STRATA_SUCCESS)
        return status;
    packed->ref = remote->number;
    packed->offset = argument->ref->offset;
    packed->ref_bytes = argument->ref->bytes;
    return STRATA_SUCCESS;
}

static strata_status check_module(const service_client *client, uint64_t module)
{
    return isolated_module_number(client->worker, module) == module
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "the service has no module %llu: it was loaded before the context was rebuilt, or never",
                             (unsigned long long)module);
}

static strata_status pack_launch(const service_client *client, const strata_future *request, isolated_frame *frame)
{
    const service_launch *launch = &request->launch;
    wire_launch *head = &frame->payload.launch.head;
    frame->kind = WIRE_LAUNCH;
    frame->text = launch->entry;
    frame->text_bytes = strlen(launch->entry);
    if (frame->text_bytes > WIRE_TEXT_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the name of the kernel has %zu bytes; at most %d are possible",
                           frame->text_bytes, WIRE_TEXT_LIMIT);
    strata_status status = check_module(client, launch->module);
    *head = (wire_launch){.send = isolated_send_of(request),
                          .module = launch->module & UINT32_MAX,
                          .shared_bytes = launch->shared_bytes,
                          .argument_count = (uint32_t)launch->count,
                          .entry_bytes = (uint32_t)frame->text_bytes};
    memcpy(head->grid, launch->grid, sizeof head->grid);
    memcpy(head->block, launch->block, sizeof head->block);
    for (size_t i = 0; i < launch->count && status == STRATA_SUCCESS; i++)
        status = pack_argument(client, &launch->arguments[i], &frame->payload.launch.arguments[i]);
    frame->bytes = sizeof *head + launch->count * sizeof frame->payload.launch.arguments[0];
    return status;
}

/* ---- cuBLAS ---- */

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
    const strata_status status = isolated_find_remote(client, operand->ref, &remote);
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

static strata_status pack_product(const service_client *client, const strata_future *request, isolated_frame *frame)
{
    wire_blas *packed = &frame->payload.blas;
    strata_blas_operand *operands[3];
    const size_t count = service_blas_operands(request->blas, operands);
    strata_status status = STRATA_SUCCESS;
    *packed = (wire_blas){.send = isolated_send_of(request), .routine = request->blas->routine};
    frame->kind = WIRE_BLAS;
    frame->bytes = sizeof *packed;
    pack_call(request->blas, packed);
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status = pack_operand(client, operands[i], &packed->operands[i]);
    return status;
}

/* ---- copies and fills on the device ---- */

static strata_status pack_copy(const service_client *client, const strata_future *request, isolated_frame *frame)
{
    const isolated_remote *from, *to;
    strata_status status = isolated_find_remote(client, request->ref, &from);
    if (status == STRATA_SUCCESS)
        status = isolated_find_remote(client, request->to, &to);
    if (status != STRATA_SUCCESS)
        return status;
    frame->kind = WIRE_COPY;
    frame->bytes = sizeof frame->payload.copy;
    frame->payload.copy = (wire_device_copy){.send = isolated_send_of(request),
                                             .from = from->number,
                                             .from_offset = request->ref->offset,
                                             .to = to->number,
                                             .to_offset = request->to->offset,
                                             .bytes = request->ref->bytes};
    return STRATA_SUCCESS;
}

static strata_status pack_fill(const service_client *client, const strata_future *request, isolated_frame *frame)
{
    const isolated_remote *remote;
    const strata_status status = isolated_find_remote(client, request->ref, &remote);
    if (status != STRATA_SUCCESS)
        return status;
    frame->kind = WIRE_FILL;
    frame->bytes = sizeof frame->payload.fill;
    frame->payload.fill = (wire_device_fill){.send = isolated_send_of(request),
                                             .ref = remote->number,
                                             .offset = request->ref->offset,
                                             .bytes = request->ref->bytes,
                                             .value = request->fill_value,
                                             .width = request->fill_width};
    return STRATA_SUCCESS;
}

/* ---- graphs ---- */

size_t isolated_recorded_bytes(const strata_future *request)
{
    switch (request->kind) {
    case SERVICE_LAUNCH:
        return wire_frame_bytes(sizeof(wire_launch) + request->launch.count * sizeof(wire_argument) +
                                strlen(request->launch.entry));
    case SERVICE_BLAS:
        return wire_frame_bytes(sizeof(wire_blas));
    case SERVICE_COPY:
        return wire_frame_bytes(sizeof(wire_device_copy));
    default:
        return wire_frame_bytes(sizeof(wire_device_fill));
    }
}

/* A launch is sent also while the worker makes the graph: what is behind it then waits for neither. */
static strata_status pack_play(const service_client *client, const strata_future *request, isolated_frame *frame)
{
    const strata_service_graph *graph = request->recorded_graph;
    const strata_status status = service_graph_check_made(graph);
    if (status != STRATA_SUCCESS && status != STRATA_ERROR_NOT_READY)
        return status;
    if (graph->remote->worker != client->worker)
        return strata_fail(STRATA_ERROR_STALE, "graph \"%s\" is stale: its worker has ended; record it again",
                           graph->name);
    frame->kind = WIRE_PLAY_GRAPH;
    frame->bytes = sizeof frame->payload.play;
    frame->payload.play = (wire_play){.send = isolated_send_of(request), .graph = graph->remote->number};
    return STRATA_SUCCESS;
}

strata_status isolated_pack(const service_client *client, const strata_future *request, isolated_frame *frame)
{
    frame->text = NULL;
    frame->text_bytes = 0;
    switch (request->kind) {
    case SERVICE_LAUNCH:
        return pack_launch(client, request, frame);
    case SERVICE_BLAS:
        return pack_product(client, request, frame);
    case SERVICE_COPY:
        return pack_copy(client, request, frame);
    case SERVICE_FILL:
        return pack_fill(client, request, frame);
    case SERVICE_PLAY_GRAPH:
        return pack_play(client, request, frame);
    default:
        return pack_allocate(request, frame);
    }
}
