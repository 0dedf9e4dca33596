/* Frames for cuBLAS as requests of the worker's own service, which checks their values. */
#include "core/base/error.h"
#include "service/service.h"
#include "service/worker/worker.h"

#include <strata/service_blas.h>

#include <string.h>

/* Finds an operand's memory, as elements of the type that the frame says. */
static strata_status find_operand(worker *self, const wire_operand *packed, strata_blas_operand *operand)
{
    strata_ref *bytes;
    const size_t element = strata_element_bytes((strata_element)packed->type);
    if (!element || packed->bytes % element)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "an operand has %llu bytes of an element type %u",
                           (unsigned long long)packed->bytes, packed->type);
    strata_status status = worker_find_ref(self, packed->ref, packed->first, packed->bytes, &bytes);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_ref_view(bytes, 0, packed->bytes / element, (strata_element)packed->type, &operand->ref);
    strata_ref_release(bytes);
    operand->offset = packed->offset;
    operand->leading = packed->leading;
    operand->stride = packed->stride;
    operand->step = packed->step;
    return status;
}

static void unpack_gemm(const wire_blas *read, strata_blas_gemm_call *call)
{
    call->order = (strata_blas_order)read->order;
    call->transpose_a = read->flags & WIRE_TRANSPOSE_A;
    call->transpose_b = read->flags & WIRE_TRANSPOSE_B;
    call->m = read->m;
    call->n = read->n;
    call->k = read->k;
    call->count = read->count;
    call->alpha = read->alpha;
    call->beta = read->beta;
}

static void unpack_gemv(const wire_blas *read, strata_blas_gemv_call *call)
{
    call->order = (strata_blas_order)read->order;
    call->transpose = read->flags & WIRE_TRANSPOSE_A;
    call->m = read->m;
    call->n = read->n;
    call->alpha = read->alpha;
    call->beta = read->beta;
}

static void unpack_ger(const wire_blas *read, strata_blas_ger_call *call)
{
    call->order = (strata_blas_order)read->order;
    call->m = read->m;
    call->n = read->n;
    call->alpha = read->alpha;
}

static void unpack_trsm(const wire_blas *read, strata_blas_trsm_call *call)
{
    call->order = (strata_blas_order)read->order;
    call->right = read->flags & WIRE_RIGHT;
    call->upper = read->flags & WIRE_UPPER;
    call->transpose = read->flags & WIRE_TRANSPOSE_A;
    call->unit_diagonal = read->flags & WIRE_UNIT_DIAGONAL;
    call->m = read->m;
    call->n = read->n;
    call->alpha = read->alpha;
}

/* False: there is no such routine. */
static bool unpack(const wire_blas *read, strata_service_blas_call *call)
{
    *call = (strata_service_blas_call){.routine = (strata_blas_routine)read->routine};
    switch (read->routine) {
    case STRATA_BLAS_GEMM:
        unpack_gemm(read, &call->call.gemm);
        return true;
    case STRATA_BLAS_GEMV:
        unpack_gemv(read, &call->call.gemv);
        return true;
    case STRATA_BLAS_GER:
        unpack_ger(read, &call->call.ger);
        return true;
    case STRATA_BLAS_TRSM:
        unpack_trsm(read, &call->call.trsm);
        return true;
    case STRATA_BLAS_AXPY:
    case STRATA_BLAS_SCAL:
    case STRATA_BLAS_DOT:
    case STRATA_BLAS_NRM2:
        call->call.vectors.n = read->n;
        call->call.vectors.alpha = read->alpha;
        return true;
    default:
        return false;
    }
}

static strata_status compute(worker *self, const wire_blas *read, const strata_send_options *options)
{
    strata_service_blas_call call;
    strata_blas_operand *operands[3];
    if (!unpack(read, &call))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "there is no routine %u", read->routine);
    const size_t count = service_blas_operands(&call, operands);
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status = find_operand(self, &read->operands[i], operands[i]);
    if (status == STRATA_SUCCESS)
        status = strata_service_blas(self->service, &call, options, NULL);
    for (size_t i = 0; i < count; i++)
        strata_ref_release(operands[i]->ref);
    return status;
}

static bool fits(const worker_frame *frame)
{
    wire_blas read;
    return wire_read(frame->payload, frame->bytes, &read, sizeof read, true);
}

static strata_status send_product(worker *self, const worker_frame *frame, const strata_send_options *options)
{
    wire_blas read;
    memcpy(&read, frame->payload, sizeof read);
    return compute(self, &read, options);
}

const worker_work worker_products = {fits, send_product};
