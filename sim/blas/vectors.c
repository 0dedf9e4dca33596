/* The host kernels of vectors, and of a matrix with vectors. x, y and the result are in a, b and c, their steps in lda,
 * ldb and ldc; type_a is the type of all. */
#include "kernels.h"

#include <string.h>

static bool is_wide(const sim_blas_call *call)
{
    return call->type_a == TYPE_64F;
}

/* Bytes of a vector of n elements. */
static size_t vector_bytes(const sim_blas_call *call, int64_t n, int64_t step)
{
    return sim_blas_span(1, n, step) * sim_blas_type_bytes(call->type_a);
}

static const void *read_range(strata_sim_launch *launch, uint64_t address, size_t bytes)
{
    return launch->declare_read(launch, address, bytes) ? launch->read(launch, address, bytes) : NULL;
}

static void *write_range(strata_sim_launch *launch, uint64_t address, size_t bytes)
{
    return launch->declare_write(launch, address, bytes) ? launch->write(launch, address, bytes) : NULL;
}

static void *change_range(strata_sim_launch *launch, uint64_t address, size_t bytes)
{
    return launch->declare_read(launch, address, bytes) ? write_range(launch, address, bytes) : NULL;
}

void sim_blas_axpy(strata_sim_launch *launch)
{
    const sim_blas_call *call = sim_blas_begin(launch);
    const void *x = read_range(launch, call->a, vector_bytes(call, call->n, call->lda));
    void *y = x ? change_range(launch, call->b, vector_bytes(call, call->n, call->ldb)) : NULL;
    if (y && is_wide(call))
        sim_blas_cpu.daxpy((int)call->n, call->alpha, x, (int)call->lda, y, (int)call->ldb);
    else if (y)
        sim_blas_cpu.saxpy((int)call->n, (float)call->alpha, x, (int)call->lda, y, (int)call->ldb);
}

void sim_blas_scal(strata_sim_launch *launch)
{
    const sim_blas_call *call = sim_blas_begin(launch);
    void *x = change_range(launch, call->a, vector_bytes(call, call->n, call->lda));
    if (x && is_wide(call))
        sim_blas_cpu.dscal((int)call->n, call->alpha, x, (int)call->lda);
    else if (x)
        sim_blas_cpu.sscal((int)call->n, (float)call->alpha, x, (int)call->lda);
}

void sim_blas_dot(strata_sim_launch *launch)
{
    const sim_blas_call *call = sim_blas_begin(launch);
    const void *x = read_range(launch, call->a, vector_bytes(call, call->n, call->lda));
    const void *y = x ? read_range(launch, call->b, vector_bytes(call, call->n, call->ldb)) : NULL;
    void *result = y ? write_range(launch, call->c, sim_blas_type_bytes(call->type_a)) : NULL;
    if (result && is_wide(call))
        *(double *)result = sim_blas_cpu.ddot((int)call->n, x, (int)call->lda, y, (int)call->ldb);
    else if (result)
        *(float *)result = sim_blas_cpu.sdot((int)call->n, x, (int)call->lda, y, (int)call->ldb);
}

void sim_blas_nrm2(strata_sim_launch *launch)
{
    const sim_blas_call *call = sim_blas_begin(launch);
    const void *x = read_range(launch, call->a, vector_bytes(call, call->n, call->lda));
    void *result = x ? write_range(launch, call->c, sim_blas_type_bytes(call->type_a)) : NULL;
    if (result && is_wide(call))
        *(double *)result = sim_blas_cpu.dnrm2((int)call->n, x, (int)call->lda);
    else if (result)
        *(float *)result = sim_blas_cpu.snrm2((int)call->n, x, (int)call->lda);
}

/* Zeroes y where beta is 0: what it holds must not count, not even a NaN. */
static void clear_vector(const sim_blas_call *call, void *y, int64_t n)
{
    const size_t bytes = sim_blas_type_bytes(call->type_a);
    for (int64_t i = 0; i < n; i++)
        memset((char *)y + (size_t)(i * call->ldc) * bytes, 0, bytes);
}

/* The matrix is in a, x in b, y in c. */
void sim_blas_gemv(strata_sim_launch *launch)
{
    const sim_blas_call *call = sim_blas_begin(launch);
    const int64_t from = call->op_a == OP_N ? call->n : call->m, to = call->op_a == OP_N ? call->m : call->n;
    const int op = call->op_a == OP_N ? CPU_PLAIN : CPU_TRANSPOSED;
    const size_t matrix = sim_blas_span(call->m, call->n, call->lda) * sim_blas_type_bytes(call->type_a);
    const void *a = read_range(launch, call->a, matrix);
    const void *x = a ? read_range(launch, call->b, vector_bytes(call, from, call->ldb)) : NULL;
    const size_t bytes = vector_bytes(call, to, call->ldc);
    void *y = NULL;
    if (x)
        y = call->beta == 0 ? write_range(launch, call->c, bytes) : change_range(launch, call->c, bytes);
    if (y && call->beta == 0)
        clear_vector(call, y, to);
    if (y && is_wide(call))
        sim_blas_cpu.dgemv(CPU_COLUMNS, op, (int)call->m, (int)call->n, call->alpha, a, (int)call->lda, x,
                           (int)call->ldb, call->beta, y, (int)call->ldc);
    else if (y)
        sim_blas_cpu.sgemv(CPU_COLUMNS, op, (int)call->m, (int)call->n, (float)call->alpha, a, (int)call->lda, x,
                           (int)call->ldb, (float)call->beta, y, (int)call->ldc);
}

/* x is in a, y in b, the matrix in c. */
void sim_blas_ger(strata_sim_launch *launch)
{
    const sim_blas_call *call = sim_blas_begin(launch);
    const size_t matrix = sim_blas_span(call->m, call->n, call->ldc) * sim_blas_type_bytes(call->type_a);
    const void *x = read_range(launch, call->a, vector_bytes(call, call->m, call->lda));
    const void *y = x ? read_range(launch, call->b, vector_bytes(call, call->n, call->ldb)) : NULL;
    void *a = y ? change_range(launch, call->c, matrix) : NULL;
    if (a && is_wide(call))
        sim_blas_cpu.dger(CPU_COLUMNS, (int)call->m, (int)call->n, call->alpha, x, (int)call->lda, y, (int)call->ldb, a,
                          (int)call->ldc);
    else if (a)
        sim_blas_cpu.sger(CPU_COLUMNS, (int)call->m, (int)call->n, (float)call->alpha, x, (int)call->lda, y,
                          (int)call->ldb, a, (int)call->ldc);
}

/* The triangle is in a, B in b. */
void sim_blas_trsm(strata_sim_launch *launch)
{
    const sim_blas_call *call = sim_blas_begin(launch);
    const int64_t rows = call->right ? call->n : call->m;
    const size_t bytes = sim_blas_type_bytes(call->type_a);
    const int side = call->right ? CPU_RIGHT : CPU_LEFT, fill = call->upper ? CPU_UPPER : CPU_LOWER;
    const int op = call->op_a == OP_N ? CPU_PLAIN : CPU_TRANSPOSED, diagonal = call->unit ? CPU_UNIT : CPU_NON_UNIT;
    const void *a = read_range(launch, call->a, sim_blas_span(rows, rows, call->lda) * bytes);
    void *b = a ? change_range(launch, call->b, sim_blas_span(call->m, call->n, call->ldb) * bytes) : NULL;
    if (b && is_wide(call))
        sim_blas_cpu.dtrsm(CPU_COLUMNS, side, fill, op, diagonal, (int)call->m, (int)call->n, call->alpha, a,
                           (int)call->lda, b, (int)call->ldb);
    else if (b)
        sim_blas_cpu.strsm(CPU_COLUMNS, side, fill, op, diagonal, (int)call->m, (int)call->n, (float)call->alpha, a,
                           (int)call->lda, b, (int)call->ldb);
}
