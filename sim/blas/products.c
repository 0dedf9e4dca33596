/* The host kernels of products of matrices. Narrow types are multiplied as f32: cuBLAS, too, keeps their sums in f32.
 */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

/* Rows and columns of a matrix as it lies in memory, in column order. */
typedef struct shape {
    int64_t rows, columns, leading;
    int type;
} shape;

static shape shape_a(const sim_blas_call *call)
{
    const bool turned = call->op_a != OP_N;
    return (shape){turned ? call->k : call->m, turned ? call->m : call->k, call->lda, call->type_a};
}

static shape shape_b(const sim_blas_call *call)
{
    const bool turned = call->op_b != OP_N;
    return (shape){turned ? call->n : call->k, turned ? call->k : call->n, call->ldb, call->type_b};
}

static shape shape_c(const sim_blas_call *call)
{
    return (shape){call->m, call->n, call->ldc, call->type_c};
}

static size_t bytes_of(const shape *of)
{
    return sim_blas_span(of->rows, of->columns, of->leading) * sim_blas_type_bytes(of->type);
}

/* A copy of the matrix in f32, without gaps; NULL: no memory. */
static float *widen(const shape *of, const void *from)
{
    const size_t bytes = sim_blas_type_bytes(of->type);
    float *to = malloc(((size_t)of->rows * (size_t)of->columns + 1) * sizeof *to);
    for (int64_t j = 0; to && j < of->columns; j++)
        for (int64_t i = 0; i < of->rows; i++)
            to[i + j * of->rows] =
                sim_blas_to_single(of->type, (const char *)from + (size_t)(i + j * of->leading) * bytes);
    return to;
}

static void narrow(const shape *of, const float *from, void *to)
{
    const size_t bytes = sim_blas_type_bytes(of->type);
    for (int64_t j = 0; j < of->columns; j++)
        for (int64_t i = 0; i < of->rows; i++)
            sim_blas_from_single(of->type, from[i + j * of->rows], (char *)to + (size_t)(i + j * of->leading) * bytes);
}

/* Zeroes C where beta is 0: what it holds must not count, not even a NaN. */
static void clear(const shape *of, void *matrix)
{
    const size_t bytes = sim_blas_type_bytes(of->type);
    for (int64_t j = 0; j < of->columns; j++)
        memset((char *)matrix + (size_t)(j * of->leading) * bytes, 0, (size_t)of->rows * bytes);
}

static int turned(int op)
{
    return op == OP_N ? CPU_PLAIN : CPU_TRANSPOSED;
}

/* Multiplies matrices in f32. If k is 0, scales C itself: some versions of OpenBLAS leave it as it is. */
static void multiply_singles(const sim_blas_call *call, const float *a, int64_t lda, const float *b, int64_t ldb,
                             float *c, int64_t ldc)
{
    if (call->k)
        sim_blas_cpu.sgemm(CPU_COLUMNS, turned(call->op_a), turned(call->op_b), (int)call->m, (int)call->n,
                           (int)call->k, (float)call->alpha, a, (int)lda, b, (int)ldb, (float)call->beta, c, (int)ldc);
    else
        for (int64_t j = 0; j < call->n; j++)
            sim_blas_cpu.sscal((int)call->m, (float)call->beta, c + j * ldc, 1);
}

static void multiply_doubles(const sim_blas_call *call, const double *a, const double *b, double *c)
{
    if (call->k)
        sim_blas_cpu.dgemm(CPU_COLUMNS, turned(call->op_a), turned(call->op_b), (int)call->m, (int)call->n,
                           (int)call->k, call->alpha, a, (int)call->lda, b, (int)call->ldb, call->beta, c,
                           (int)call->ldc);
    else
        for (int64_t j = 0; j < call->n; j++)
            sim_blas_cpu.dscal((int)call->m, call->beta, c + j * call->ldc, 1);
}

/* Multiplies narrow types by way of copies in f32. False without memory for them. */
static bool multiply_narrow(const sim_blas_call *call, const void *a, const void *b, void *c)
{
    const shape of_a = shape_a(call), of_b = shape_b(call), of_c = shape_c(call);
    float *wide_a = widen(&of_a, a), *wide_b = widen(&of_b, b), *wide_c = widen(&of_c, c);
    const bool there = wide_a && wide_b && wide_c;
    if (there) {
        multiply_singles(call, wide_a, of_a.rows ? of_a.rows : 1, wide_b, of_b.rows ? of_b.rows : 1, wide_c, call->m);
        narrow(&of_c, wide_c, c);
    }
    free(wide_a);
    free(wide_b);
    free(wide_c);
    return there;
}

static void multiply(strata_sim_launch *launch, const sim_blas_call *call, const void *a, const void *b, void *c)
{
    const shape of_c = shape_c(call);
    if (call->beta == 0)
        clear(&of_c, c);
    if (call->type_a == TYPE_64F)
        multiply_doubles(call, a, b, c);
    else if (call->type_a == TYPE_32F)
        multiply_singles(call, a, call->lda, b, call->ldb, c, call->ldc);
    else if (!multiply_narrow(call, a, b, c))
        sim_blas_give_up(launch);
}

typedef struct matrices {
    const void *a, *b;
    void *c;
} matrices;

/* Whether A and B are read. */
static bool multiplies(const sim_blas_call *call)
{
    return call->k != 0 && call->alpha != 0;
}

static bool reach(strata_sim_launch *launch, const sim_blas_call *call, uint64_t a, uint64_t b, uint64_t c,
                  matrices *out)
{
    const shape of_a = shape_a(call), of_b = shape_b(call), of_c = shape_c(call);
    *out = (matrices){"", "", launch->write(launch, c, bytes_of(&of_c))};
    if (multiplies(call)) {
        out->a = launch->read(launch, a, bytes_of(&of_a));
        out->b = launch->read(launch, b, bytes_of(&of_b));
    }
    return out->a && out->b && out->c;
}

/* Declares accesses to `times` matrices of this shape, `stride` elements apart. */
static bool declare(strata_sim_launch *launch, const shape *of, uint64_t address, int64_t stride, int64_t times,
                    bool reads, bool writes)
{
    const size_t bytes = bytes_of(of) + (size_t)((times - 1) * stride) * sim_blas_type_bytes(of->type);
    return (!reads || launch->declare_read(launch, address, bytes)) &&
           (!writes || launch->declare_write(launch, address, bytes));
}

static bool declare_all(strata_sim_launch *launch, const sim_blas_call *call, uint64_t a, uint64_t b, uint64_t c,
                        int64_t times)
{
    const shape of_a = shape_a(call), of_b = shape_b(call), of_c = shape_c(call);
    const bool reads = multiplies(call);
    return declare(launch, &of_a, a, call->stride_a, times, reads, false) &&
           declare(launch, &of_b, b, call->stride_b, times, reads, false) &&
           declare(launch, &of_c, c, call->stride_c, times, call->beta != 0, true);
}

/* Sets k to 0 if there is no product to add: A and B need not be there then. */
static sim_blas_call without_reads(const sim_blas_call *call)
{
    sim_blas_call plain = *call;
    if (!multiplies(call))
        plain.k = 0;
    return plain;
}

void sim_blas_gemm(strata_sim_launch *launch)
{
    const sim_blas_call plain = without_reads(sim_blas_begin(launch)), *call = &plain;
    matrices at;
    if (!declare_all(launch, call, call->a, call->b, call->c, call->count))
        return;
    for (int64_t i = 0; i < call->count; i++) {
        const uint64_t a = call->a + (uint64_t)(i * call->stride_a) * sim_blas_type_bytes(call->type_a);
        const uint64_t b = call->b + (uint64_t)(i * call->stride_b) * sim_blas_type_bytes(call->type_b);
        const uint64_t c = call->c + (uint64_t)(i * call->stride_c) * sim_blas_type_bytes(call->type_c);
        if (!reach(launch, call, a, b, c, &at))
            return;
        multiply(launch, call, at.a, at.b, at.c);
    }
}

static const uint64_t *reach_pointers(strata_sim_launch *launch, uint64_t address, int64_t count)
{
    const size_t bytes = (size_t)count * sizeof(uint64_t);
    return launch->declare_read(launch, address, bytes) ? launch->read(launch, address, bytes) : NULL;
}

/* Declares the matrices of the whole batch, to which its pointers lead, before the first product. */
void sim_blas_gemm_batched(strata_sim_launch *launch)
{
    const sim_blas_call plain = without_reads(sim_blas_begin(launch)), *call = &plain;
    matrices at;
    const uint64_t *a = reach_pointers(launch, call->a, call->count);
    const uint64_t *b = a ? reach_pointers(launch, call->b, call->count) : NULL;
    const uint64_t *c = b ? reach_pointers(launch, call->c, call->count) : NULL;
    for (int64_t i = 0; c && i < call->count; i++)
        if (!declare_all(launch, call, a[i], b[i], c[i], 1))
            return;
    for (int64_t i = 0; c && i < call->count; i++) {
        if (!reach(launch, call, a[i], b[i], c[i], &at))
            return;
        multiply(launch, call, at.a, at.b, at.c);
    }
}
