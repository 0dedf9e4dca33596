/* gemv, ger and trsm. As in gemm.c, a matrix in row order is its transpose in column order. */
#include "runtime/blas/internal.h"

/* PTDS programs see macros of these names. */
#undef strata_blas_gemv
#undef strata_blas_ger
#undef strata_blas_trsm

typedef struct matrix_data {
    bool wide; /* f64 */
    bool right, upper, transpose, unit;
    int64_t m, n; /* as the library takes them */
    int64_t lead_a, lead_b, step_x, step_y;
    blas_factor alpha, beta;
    CUdeviceptr a, b, x, y;
} matrix_data;

static void *pointer_to(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static int op_of(bool transpose)
{
    return transpose ? STRATA_CUBLAS_OP_T : STRATA_CUBLAS_OP_N;
}

static strata_status check_sizes(size_t m, size_t n, const char *name)
{
    return m <= INT64_MAX && n <= INT64_MAX
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: a size is above the largest int64_t", name);
}

/* Checks a matrix of m by n elements in this order. */
static strata_status check_matrix(const strata_blas_operand *operand, const char *name, const blas_memory *memory,
                                  strata_blas_order order, size_t m, size_t n, int64_t *leading)
{
    const bool by_rows = order == STRATA_BLAS_ROWS;
    return blas_matrix_check(operand, name, memory, by_rows ? m : n, by_rows ? n : m, 1, leading);
}

/* ---- gemv ---- */

static int submit_gemv(const strata_blas *blas, const void *data, const blas_place *place, const char **function)
{
    const matrix_data *d = data;
    const strata_blas_table *call = &blas->library->call;
    (void)place;
    *function = d->wide ? "cublasDgemv" : "cublasSgemv";
    return (d->wide ? call->dgemv : call->sgemv)(blas->handle, op_of(d->transpose), d->m, d->n, &d->alpha,
                                                 pointer_to(d->a), d->lead_a, pointer_to(d->x), d->step_x, &d->beta,
                                                 pointer_to(d->y), d->step_y);
}

static strata_status prepare_gemv(const strata_blas_gemv_call *call, matrix_data *d)
{
    blas_memory a, x, y;
    const bool by_rows = call->order == STRATA_BLAS_ROWS;
    strata_status status = check_sizes(call->m, call->n, "strata_blas_gemv");
    if (status == STRATA_SUCCESS)
        status = blas_operand_resolve_real(&call->a, "A", STRATA_ELEMENT_NONE, &a);
    if (status == STRATA_SUCCESS)
        status = check_matrix(&call->a, "A", &a, call->order, call->m, call->n, &d->lead_a);
    if (status == STRATA_SUCCESS)
        status = blas_vector_resolve(&call->x, "x", a.type, call->transpose ? call->m : call->n, &x, &d->step_x);
    if (status == STRATA_SUCCESS)
        status = blas_vector_resolve(&call->y, "y", a.type, call->transpose ? call->n : call->m, &y, &d->step_y);
    if (status != STRATA_SUCCESS)
        return status;
    d->wide = a.type == STRATA_ELEMENT_F64;
    d->transpose = call->transpose != by_rows;
    d->m = (int64_t)(by_rows ? call->n : call->m);
    d->n = (int64_t)(by_rows ? call->m : call->n);
    d->alpha = blas_factor_of(call->alpha, d->wide);
    d->beta = blas_factor_of(call->beta, d->wide);
    d->a = a.address;
    d->x = x.address;
    d->y = y.address;
    return STRATA_SUCCESS;
}

strata_status strata_blas_gemv(strata_blas *blas, const strata_blas_gemv_call *given, CUstream stream)
{
    strata_blas_gemv_call call;
    matrix_data d = {0};
    strata_status status = blas_read_call(blas, "strata_blas_gemv", given, &call, sizeof call);
    if (status == STRATA_SUCCESS)
        status = blas_check_order(call.order, "strata_blas_gemv");
    if (status == STRATA_SUCCESS)
        status = prepare_gemv(&call, &d);
    if (status != STRATA_SUCCESS || !call.m || !call.n)
        return status;
    const blas_use uses[] = {{&call.a, STRATA_ACCESS_READ},
                             {&call.x, STRATA_ACCESS_READ},
                             {&call.y, call.beta == 0 ? STRATA_ACCESS_WRITE : STRATA_ACCESS_READ_WRITE}};
    return blas_submit(blas, &(blas_work){.uses = uses, .count = 3, .submit = submit_gemv, .data = &d}, stream);
}

/* ---- ger ---- */

static int submit_ger(const strata_blas *blas, const void *data, const blas_place *place, const char **function)
{
    const matrix_data *d = data;
    const strata_blas_table *call = &blas->library->call;
    (void)place;
    *function = d->wide ? "cublasDger" : "cublasSger";
    return (d->wide ? call->dger : call->sger)(blas->handle, d->m, d->n, &d->alpha, pointer_to(d->x), d->step_x,
                                               pointer_to(d->y), d->step_y, pointer_to(d->a), d->lead_a);
}

static strata_status prepare_ger(const strata_blas_ger_call *call, matrix_data *d)
{
    blas_memory a, x, y;
    const bool by_rows = call->order == STRATA_BLAS_ROWS;
    int64_t step_x, step_y;
    strata_status status = check_sizes(call->m, call->n, "strata_blas_ger");
    if (status == STRATA_SUCCESS)
        status = blas_operand_resolve_real(&call->a, "A", STRATA_ELEMENT_NONE, &a);
    if (status == STRATA_SUCCESS)
        status = check_matrix(&call->a, "A", &a, call->order, call->m, call->n, &d->lead_a);
    if (status == STRATA_SUCCESS)
        status = blas_vector_resolve(&call->x, "x", a.type, call->m, &x, &step_x);
    if (status == STRATA_SUCCESS)
        status = blas_vector_resolve(&call->y, "y", a.type, call->n, &y, &step_y);
    if (status != STRATA_SUCCESS)
        return status;
    d->wide = a.type == STRATA_ELEMENT_F64;
    d->m = (int64_t)(by_rows ? call->n : call->m);
    d->n = (int64_t)(by_rows ? call->m : call->n);
    d->alpha = blas_factor_of(call->alpha, d->wide);
    d->a = a.address;
    d->x = by_rows ? y.address : x.address;
    d->y = by_rows ? x.address : y.address;
    d->step_x = by_rows ? step_y : step_x;
    d->step_y = by_rows ? step_x : step_y;
    return STRATA_SUCCESS;
}

strata_status strata_blas_ger(strata_blas *blas, const strata_blas_ger_call *given, CUstream stream)
{
    strata_blas_ger_call call;
    matrix_data d = {0};
    strata_status status = blas_read_call(blas, "strata_blas_ger", given, &call, sizeof call);
    if (status == STRATA_SUCCESS)
        status = blas_check_order(call.order, "strata_blas_ger");
    if (status == STRATA_SUCCESS)
        status = prepare_ger(&call, &d);
    if (status != STRATA_SUCCESS || !call.m || !call.n)
        return status;
    const blas_use uses[] = {
        {&call.x, STRATA_ACCESS_READ}, {&call.y, STRATA_ACCESS_READ}, {&call.a, STRATA_ACCESS_READ_WRITE}};
    return blas_submit(blas, &(blas_work){.uses = uses, .count = 3, .submit = submit_ger, .data = &d}, stream);
}

/* ---- trsm ---- */

static int submit_trsm(const strata_blas *blas, const void *data, const blas_place *place, const char **function)
{
    const matrix_data *d = data;
    const strata_blas_table *call = &blas->library->call;
    (void)place;
    *function = d->wide ? "cublasDtrsm" : "cublasStrsm";
    return (d->wide ? call->dtrsm : call->strsm)(blas->handle, d->right ? STRATA_CUBLAS_RIGHT : STRATA_CUBLAS_LEFT,
                                                 d->upper ? STRATA_CUBLAS_UPPER : STRATA_CUBLAS_LOWER,
                                                 op_of(d->transpose),
                                                 d->unit ? STRATA_CUBLAS_UNIT : STRATA_CUBLAS_NON_UNIT, d->m, d->n,
                                                 &d->alpha, pointer_to(d->a), d->lead_a, pointer_to(d->b), d->lead_b);
}

/* In row order left and right, and the upper and lower half, change places. */
static strata_status prepare_trsm(const strata_blas_trsm_call *call, matrix_data *d)
{
    blas_memory a, b;
    const bool by_rows = call->order == STRATA_BLAS_ROWS;
    const size_t rows = call->right ? call->n : call->m;
    strata_status status = check_sizes(call->m, call->n, "strata_blas_trsm");
    if (status == STRATA_SUCCESS)
        status = blas_operand_resolve_real(&call->a, "A", STRATA_ELEMENT_NONE, &a);
    if (status == STRATA_SUCCESS)
        status = check_matrix(&call->a, "A", &a, call->order, rows, rows, &d->lead_a);
    if (status == STRATA_SUCCESS)
        status = blas_operand_resolve_real(&call->b, "B", a.type, &b);
    if (status == STRATA_SUCCESS)
        status = check_matrix(&call->b, "B", &b, call->order, call->m, call->n, &d->lead_b);
    if (status != STRATA_SUCCESS)
        return status;
    d->wide = a.type == STRATA_ELEMENT_F64;
    d->right = call->right != by_rows;
    d->upper = call->upper != by_rows;
    d->transpose = call->transpose;
    d->unit = call->unit_diagonal;
    d->m = (int64_t)(by_rows ? call->n : call->m);
    d->n = (int64_t)(by_rows ? call->m : call->n);
    d->alpha = blas_factor_of(call->alpha, d->wide);
    d->a = a.address;
    d->b = b.address;
    return STRATA_SUCCESS;
}

strata_status strata_blas_trsm(strata_blas *blas, const strata_blas_trsm_call *given, CUstream stream)
{
    strata_blas_trsm_call call;
    matrix_data d = {0};
    strata_status status = blas_read_call(blas, "strata_blas_trsm", given, &call, sizeof call);
    if (status == STRATA_SUCCESS)
        status = blas_check_order(call.order, "strata_blas_trsm");
    if (status == STRATA_SUCCESS)
        status = prepare_trsm(&call, &d);
    if (status != STRATA_SUCCESS || !call.m || !call.n)
        return status;
    const blas_use uses[] = {{&call.a, STRATA_ACCESS_READ}, {&call.b, STRATA_ACCESS_READ_WRITE}};
    return blas_submit(blas, &(blas_work){.uses = uses, .count = 2, .submit = submit_trsm, .data = &d}, stream);
}
