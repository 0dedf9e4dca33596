/* cublasLt: descriptions of a product, and products of f8 alone, under the rules of a device of compute capability 9.
 */
#include "blas.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef sim_blas_handle *cublasLtHandle_t; /* a cublasHandle_t, too */

typedef struct lt_desc {
    int compute;
    int op_a, op_b;
} * cublasLtMatmulDesc_t;

typedef struct lt_layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
} * cublasLtMatrixLayout_t;

typedef struct lt_preference {
    size_t workspace_bytes;
    uint32_t alignments[4]; /* of A, B, C and D */
} * cublasLtMatmulPreference_t;

/* cublasLtMatmulHeuristicResult_t */
typedef struct lt_heuristic {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} lt_heuristic;

/* Attributes (cublasLt.h). */
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, PREFERENCE_WORKSPACE = 1, PREFERENCE_ALIGNMENT_A = 5 };
enum { F8_MULTIPLE = 16 };

/* ---- descriptions ---- */

SIM_BLAS_EXPORT int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, int compute, int scale_type)
{
    if (compute != COMPUTE_32F || scale_type != TYPE_32F)
        return CUBLAS_NOT_SUPPORTED;
    *desc = calloc(1, sizeof **desc);
    if (!*desc)
        return CUBLAS_ALLOC_FAILED;
    (*desc)->compute = compute;
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, int which, const void *value,
                                                   size_t bytes)
{
    if (bytes != sizeof(int))
        return CUBLAS_INVALID_VALUE;
    if (which != DESC_TRANSA && which != DESC_TRANSB)
        return CUBLAS_NOT_SUPPORTED;
    memcpy(which == DESC_TRANSA ? &desc->op_a : &desc->op_b, value, sizeof(int));
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, int type, uint64_t rows,
                                               uint64_t columns, int64_t leading)
{
    if (!sim_blas_type_bytes(type))
        return CUBLAS_NOT_SUPPORTED;
    *layout = calloc(1, sizeof **layout);
    if (!*layout)
        return CUBLAS_ALLOC_FAILED;
    **layout = (struct lt_layout){type, rows, columns, leading};
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = calloc(1, sizeof **preference);
    if (!*preference)
        return CUBLAS_ALLOC_FAILED;
    for (int i = 0; i < 4; i++)
        (*preference)->alignments[i] = 256; /* cublasLt's default */
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, int which,
                                                         const void *value, size_t bytes)
{
    if (which == PREFERENCE_WORKSPACE && bytes == sizeof(size_t))
        memcpy(&preference->workspace_bytes, value, bytes);
    else if (which >= PREFERENCE_ALIGNMENT_A && which < PREFERENCE_ALIGNMENT_A + 4 && bytes == sizeof(uint32_t))
        memcpy(&preference->alignments[which - PREFERENCE_ALIGNMENT_A], value, bytes);
    else
        return CUBLAS_NOT_SUPPORTED;
    return CUBLAS_SUCCESS;
}

/* ---- products ---- */

static bool is_f8(int type)
{
    return type == TYPE_8F_E4M3 || type == TYPE_8F_E5M2;
}

static bool are_types(int a, int b, int c)
{
    return is_f8(a) && is_f8(b) && (a == TYPE_8F_E4M3 || b == TYPE_8F_E4M3) &&
           (c == TYPE_32F || c == TYPE_16F || c == TYPE_16BF);
}

/* Products of f8: A transposed, B not, sizes and leading dimensions multiples of 16. */
static bool has_form(const struct lt_desc *desc, const struct lt_layout *a, const struct lt_layout *b,
                     const struct lt_layout *c)
{
    const uint64_t sizes[] = {a->rows, a->columns, b->columns, (uint64_t)a->leading, (uint64_t)b->leading};
    if (desc->op_a != OP_T || desc->op_b != OP_N || !are_types(a->type, b->type, c->type))
        return false;
    if (a->rows != b->rows || c->rows != a->columns || c->columns != b->columns)
        return false;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!sizes[i] || sizes[i] % F8_MULTIPLE || sizes[i] > INT_MAX)
            return false;
    return c->leading >= (int64_t)c->rows && c->leading <= INT_MAX;
}

SIM_BLAS_EXPORT int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                   cublasLtMatmulPreference_t preference, int most,
                                                   lt_heuristic *results, int *count)
{
    *count = 0;
    if (!handle)
        return CUBLAS_NOT_INITIALIZED;
    if (most < 1)
        return CUBLAS_INVALID_VALUE;
    for (int i = 0; i < 2; i++)
        if (preference->alignments[i] < F8_MULTIPLE)
            return CUBLAS_NOT_SUPPORTED;
    if (c != d || !has_form(desc, a, b, c))
        return CUBLAS_NOT_SUPPORTED;
    results[0] = (lt_heuristic){.state = CUBLAS_SUCCESS};
    *count = 1;
    return CUBLAS_SUCCESS;
}

SIM_BLAS_EXPORT int cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                                   cublasLtMatrixLayout_t layout_a, const void *b, cublasLtMatrixLayout_t layout_b,
                                   const void *beta, const void *c, cublasLtMatrixLayout_t layout_c, void *d,
                                   cublasLtMatrixLayout_t layout_d, const uint64_t *algorithm, void *workspace,
                                   size_t workspace_bytes, CUstream stream)
{
    (void)algorithm;
    if (!handle)
        return CUBLAS_NOT_INITIALIZED;
    if (c != d || layout_c != layout_d || !has_form(desc, layout_a, layout_b, layout_c))
        return CUBLAS_NOT_SUPPORTED;
    sim_blas_handle place = *handle;
    place.stream = stream;
    place.workspace = (uintptr_t)workspace;
    place.workspace_bytes = workspace_bytes;
    sim_blas_call call = {.m = (int64_t)layout_c->rows,
                          .n = (int64_t)layout_c->columns,
                          .k = (int64_t)layout_a->rows,
                          .lda = layout_a->leading,
                          .ldb = layout_b->leading,
                          .ldc = layout_c->leading,
                          .count = 1,
                          .alpha = (double)*(const float *)alpha,
                          .beta = (double)*(const float *)beta,
                          .a = (uintptr_t)a,
                          .b = (uintptr_t)b,
                          .c = (uintptr_t)d,
                          .type_a = layout_a->type,
                          .type_b = layout_b->type,
                          .type_c = layout_c->type,
                          .op_a = desc->op_a,
                          .op_b = desc->op_b};
    return sim_blas_submit(&place, SIM_BLAS_GEMM, &call);
}
