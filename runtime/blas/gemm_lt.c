/* Products of f8, which cuBLAS has in cublasLt alone: the matrices are described by objects, and an algorithm is asked
 * for. C is also D. */
#include "runtime/blas/internal.h"

/* The objects that describe a product; NULL: not made yet. */
typedef struct descriptions {
    strata_cublaslt_desc desc;
    strata_cublaslt_layout a, b, c;
    strata_cublaslt_preference preference;
} descriptions;

static int describe_matrices(const strata_blas_table *call, const blas_product *p, descriptions *of,
                             const char **function)
{
    const bool ta = p->op_a == STRATA_CUBLAS_OP_T, tb = p->op_b == STRATA_CUBLAS_OP_T;
    *function = "cublasLtMatrixLayoutCreate";
    int result =
        call->lt_layout_create(&of->a, p->type_a, (uint64_t)(ta ? p->k : p->m), (uint64_t)(ta ? p->m : p->k), p->lda);
    if (result == STRATA_CUBLAS_SUCCESS)
        result = call->lt_layout_create(&of->b, p->type_b, (uint64_t)(tb ? p->n : p->k), (uint64_t)(tb ? p->k : p->n),
                                        p->ldb);
    if (result == STRATA_CUBLAS_SUCCESS)
        result = call->lt_layout_create(&of->c, p->type_c, (uint64_t)p->m, (uint64_t)p->n, p->ldc);
    return result;
}

static int describe_product(const strata_blas_table *call, const blas_product *p, descriptions *of,
                            const char **function)
{
    *function = "cublasLtMatmulDescCreate";
    int result = call->lt_desc_create(&of->desc, p->compute, STRATA_CUDA_R_32F);
    if (result != STRATA_CUBLAS_SUCCESS)
        return result;
    *function = "cublasLtMatmulDescSetAttribute";
    result = call->lt_desc_set(of->desc, STRATA_CUBLASLT_DESC_TRANSA, &p->op_a, sizeof p->op_a);
    return result == STRATA_CUBLAS_SUCCESS
               ? call->lt_desc_set(of->desc, STRATA_CUBLASLT_DESC_TRANSB, &p->op_b, sizeof p->op_b)
               : result;
}

/* The largest power of two, at most 256, that the address is a multiple of. */
static uint32_t alignment_of(CUdeviceptr address)
{
    return (uint32_t)(address % 256 ? address & -address : 256);
}

static int describe_preference(const strata_blas_table *call, const blas_product *p, size_t workspace_bytes,
                               descriptions *of, const char **function)
{
    const uint32_t alignments[] = {alignment_of(p->a), alignment_of(p->b), alignment_of(p->c), alignment_of(p->c)};
    *function = "cublasLtMatmulPreferenceCreate";
    int result = call->lt_preference_create(&of->preference);
    if (result != STRATA_CUBLAS_SUCCESS)
        return result;
    *function = "cublasLtMatmulPreferenceSetAttribute";
    result = call->lt_preference_set(of->preference, STRATA_CUBLASLT_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                     sizeof workspace_bytes);
    for (int i = 0; i < 4 && result == STRATA_CUBLAS_SUCCESS; i++)
        result = call->lt_preference_set(of->preference, STRATA_CUBLASLT_PREF_MIN_ALIGNMENT_A_BYTES + i, &alignments[i],
                                         sizeof alignments[i]);
    return result;
}

static void end(const strata_blas_table *call, descriptions *of)
{
    if (of->preference)
        call->lt_preference_destroy(of->preference);
    if (of->c)
        call->lt_layout_destroy(of->c);
    if (of->b)
        call->lt_layout_destroy(of->b);
    if (of->a)
        call->lt_layout_destroy(of->a);
    if (of->desc)
        call->lt_desc_destroy(of->desc);
}

/* Asks for the best algorithm and runs it. */
static int run(const strata_blas *blas, const blas_product *p, const blas_place *place, const descriptions *of,
               const char **function)
{
    const strata_blas_table *call = &blas->library->call;
    strata_cublaslt_heuristic best = {.state = STRATA_CUBLAS_NOT_SUPPORTED};
    int found = 0;
    *function = "cublasLtMatmulAlgoGetHeuristic";
    int result =
        call->lt_heuristic(blas->handle, of->desc, of->a, of->b, of->c, of->c, of->preference, 1, &best, &found);
    if (result == STRATA_CUBLAS_SUCCESS && !found)
        result = STRATA_CUBLAS_NOT_SUPPORTED;
    if (result == STRATA_CUBLAS_SUCCESS)
        result = best.state;
    if (result != STRATA_CUBLAS_SUCCESS)
        return result;
    *function = "cublasLtMatmul";
    void *c = (void *)(uintptr_t)p->c;
    return call->lt_matmul(blas->handle, of->desc, &p->alpha, (const void *)(uintptr_t)p->a, of->a,
                           (const void *)(uintptr_t)p->b, of->b, &p->beta, c, of->c, c, of->c, best.algorithm,
                           (void *)(uintptr_t)place->workspace, place->workspace_bytes, place->stream);
}

int blas_submit_lt(const strata_blas *blas, const void *product, const blas_place *place, const char **function)
{
    const strata_blas_table *call = &blas->library->call;
    const blas_product *p = product;
    descriptions of = {0};
    int result = describe_matrices(call, p, &of, function);
    if (result == STRATA_CUBLAS_SUCCESS)
        result = describe_product(call, p, &of, function);
    if (result == STRATA_CUBLAS_SUCCESS)
        result = describe_preference(call, p, place->workspace_bytes, &of, function);
    if (result == STRATA_CUBLAS_SUCCESS)
        result = run(blas, p, place, &of, function);
    end(call, &of);
    return result;
}
