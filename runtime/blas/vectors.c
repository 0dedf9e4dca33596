/* axpy, scal, dot and nrm2. Results go to the device, so that no call of the library waits. */
#include "runtime/blas/internal.h"

#include "core/streams/call_scope.h"

/* PTDS programs see macros of these names. */
#undef strata_blas_axpy
#undef strata_blas_scal
#undef strata_blas_dot
#undef strata_blas_nrm2
#undef strata_blas_dot_value
#undef strata_blas_nrm2_value
#undef strata_runtime_allocate
#undef strata_runtime_deallocate_on
#undef strata_runtime_stream_synchronize

typedef enum vector_kind { AXPY, SCAL, DOT, NRM2 } vector_kind;

typedef struct vector_data {
    vector_kind kind;
    bool wide; /* f64 */
    int64_t n, step_x, step_y;
    blas_factor alpha;
    CUdeviceptr x, y, result;
} vector_data;

/* Writes the result of vectors without elements: cuBLAS may return without writing one. */
static int write_zero(const vector_data *d, CUstream stream, const char **function)
{
    *function = "cuMemsetD8Async";
    return strata_cu.MemsetD8Async(d->result, 0, d->wide ? sizeof(double) : sizeof(float), stream) == CUDA_SUCCESS
               ? STRATA_CUBLAS_SUCCESS
               : STRATA_CUBLAS_EXECUTION_FAILED;
}

static int submit(const strata_blas *blas, const void *data, const blas_place *place, const char **function)
{
    const vector_data *d = data;
    const strata_blas_table *call = &blas->library->call;
    void *x = (void *)(uintptr_t)d->x, *y = (void *)(uintptr_t)d->y, *result = (void *)(uintptr_t)d->result;
    if (!d->n)
        return write_zero(d, place->stream, function);
    switch (d->kind) {
    case AXPY:
        *function = d->wide ? "cublasDaxpy" : "cublasSaxpy";
        return (d->wide ? call->daxpy : call->saxpy)(blas->handle, d->n, &d->alpha, x, d->step_x, y, d->step_y);
    case SCAL:
        *function = d->wide ? "cublasDscal" : "cublasSscal";
        return (d->wide ? call->dscal : call->sscal)(blas->handle, d->n, &d->alpha, x, d->step_x);
    case DOT:
        *function = d->wide ? "cublasDdot" : "cublasSdot";
        return (d->wide ? call->ddot : call->sdot)(blas->handle, d->n, x, d->step_x, y, d->step_y, result);
    default:
        *function = d->wide ? "cublasDnrm2" : "cublasSnrm2";
        return (d->wide ? call->dnrm2 : call->snrm2)(blas->handle, d->n, x, d->step_x, result);
    }
}

/* Checks the vectors; y and result may be NULL. */
static strata_status prepare(const strata_blas *blas, size_t n, const strata_blas_operand *x,
                             const strata_blas_operand *y, const strata_blas_operand *result, const char *name,
                             vector_data *d)
{
    blas_memory memory;
    int64_t step;
    strata_status status = blas_check(blas, name);
    if (status == STRATA_SUCCESS)
        status = blas_vector_resolve(x, "x", STRATA_ELEMENT_NONE, n, &memory, &d->step_x);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_element type = memory.type;
    d->n = (int64_t)n;
    d->wide = type == STRATA_ELEMENT_F64;
    d->x = memory.address;
    if (d->kind == AXPY || d->kind == DOT) {
        status = blas_vector_resolve(y, "y", type, n, &memory, &d->step_y);
        d->y = memory.address;
    }
    if (status == STRATA_SUCCESS && (d->kind == DOT || d->kind == NRM2)) {
        status = blas_vector_resolve(result, "result", type, 1, &memory, &step);
        d->result = memory.address;
    }
    return status;
}

strata_status strata_blas_axpy(strata_blas *blas, size_t n, double alpha, const strata_blas_operand *x,
                               const strata_blas_operand *y, CUstream stream)
{
    vector_data d = {.kind = AXPY};
    const strata_status status = prepare(blas, n, x, y, NULL, "strata_blas_axpy", &d);
    if (status != STRATA_SUCCESS || !n)
        return status;
    d.alpha = blas_factor_of(alpha, d.wide);
    const blas_use uses[] = {{x, STRATA_ACCESS_READ}, {y, STRATA_ACCESS_READ_WRITE}};
    return blas_submit(blas, &(blas_work){.uses = uses, .count = 2, .submit = submit, .data = &d}, stream);
}

strata_status strata_blas_scal(strata_blas *blas, size_t n, double alpha, const strata_blas_operand *x, CUstream stream)
{
    vector_data d = {.kind = SCAL};
    const strata_status status = prepare(blas, n, x, NULL, NULL, "strata_blas_scal", &d);
    if (status != STRATA_SUCCESS || !n)
        return status;
    d.alpha = blas_factor_of(alpha, d.wide);
    const blas_use uses[] = {{x, STRATA_ACCESS_READ_WRITE}};
    return blas_submit(blas, &(blas_work){.uses = uses, .count = 1, .submit = submit, .data = &d}, stream);
}

strata_status strata_blas_dot(strata_blas *blas, size_t n, const strata_blas_operand *x, const strata_blas_operand *y,
                              const strata_blas_operand *result, CUstream stream)
{
    vector_data d = {.kind = DOT};
    const strata_status status = prepare(blas, n, x, y, result, "strata_blas_dot", &d);
    if (status != STRATA_SUCCESS)
        return status;
    const blas_use uses[] = {{result, STRATA_ACCESS_WRITE}, {x, STRATA_ACCESS_READ}, {y, STRATA_ACCESS_READ}};
    return blas_submit(
        blas, &(blas_work){.uses = uses, .count = n ? 3 : 1, .result_on_device = true, .submit = submit, .data = &d},
        stream);
}

strata_status strata_blas_nrm2(strata_blas *blas, size_t n, const strata_blas_operand *x,
                               const strata_blas_operand *result, CUstream stream)
{
    vector_data d = {.kind = NRM2};
    const strata_status status = prepare(blas, n, x, NULL, result, "strata_blas_nrm2", &d);
    if (status != STRATA_SUCCESS)
        return status;
    const blas_use uses[] = {{result, STRATA_ACCESS_WRITE}, {x, STRATA_ACCESS_READ}};
    return blas_submit(
        blas, &(blas_work){.uses = uses, .count = n ? 2 : 1, .result_on_device = true, .submit = submit, .data = &d},
        stream);
}

/* ---- results on the host ---- */

/* Copies the element and waits. A copy to pageable memory is complete before the wait, too. */
static strata_status fetch(strata_blas *blas, const strata_block *block, bool wide, CUstream stream, double *out)
{
    float single = 0;
    double twice = 0;
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, blas->runtime->device,
                                                   STRATA_CALL_SCOPE_CONTEXT | strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.MemcpyDtoHAsync(wide ? (void *)&twice : &single, block->address,
                                                      wide ? sizeof twice : sizeof single, stream);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemcpyDtoHAsync", "reading a result of cuBLAS%s",
                                  strata_stream_hint(result));
    status = strata_runtime_stream_synchronize(blas->runtime, stream);
    if (status == STRATA_SUCCESS)
        *out = wide ? twice : (double)single;
    return status;
}

/* The result of dot, or with a NULL `y` of nrm2, on the host. */
static strata_status value_of(strata_blas *blas, size_t n, const strata_blas_operand *x, const strata_blas_operand *y,
                              CUstream stream, double *out)
{
    blas_memory memory;
    strata_block block;
    strata_status status = blas_check_not_captured(blas->runtime, stream, "a result is wanted on the host");
    if (status == STRATA_SUCCESS)
        status = blas_operand_resolve_real(x, "x", STRATA_ELEMENT_NONE, &memory);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_allocate(blas->runtime, sizeof(double), stream, &block);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_blas_operand result = strata_blas_of_block(&block, memory.type);
    status = y ? strata_blas_dot(blas, n, x, y, &result, stream) : strata_blas_nrm2(blas, n, x, &result, stream);
    if (status == STRATA_SUCCESS)
        status = fetch(blas, &block, memory.type == STRATA_ELEMENT_F64, stream, out);
    const strata_status freed = strata_runtime_deallocate_on(blas->runtime, &block, stream);
    return status == STRATA_SUCCESS ? freed : status;
}

strata_status strata_blas_dot_value(strata_blas *blas, size_t n, const strata_blas_operand *x,
                                    const strata_blas_operand *y, CUstream stream, double *out)
{
    if (!out || !y)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_dot_value: y or out is NULL");
    *out = 0;
    const strata_status status = blas_check(blas, "strata_blas_dot_value");
    return status == STRATA_SUCCESS ? value_of(blas, n, x, y, stream, out) : status;
}

strata_status strata_blas_nrm2_value(strata_blas *blas, size_t n, const strata_blas_operand *x, CUstream stream,
                                     double *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_nrm2_value: out is NULL");
    *out = 0;
    const strata_status status = blas_check(blas, "strata_blas_nrm2_value");
    return status == STRATA_SUCCESS ? value_of(blas, n, x, NULL, stream, out) : status;
}
