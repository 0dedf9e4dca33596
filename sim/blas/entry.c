/* Entry points that compute. They check what cuBLAS checks and make one call for a kernel. Alpha and beta are the
 * host's, results the device's: other pointers are CUBLAS_STATUS_NOT_SUPPORTED. */
#include "blas.h"

#include <limits.h>

typedef sim_blas_handle *cublasHandle_t;

/* Whether the CPU's BLAS takes a size: its integers are ints. */
static bool fits(int64_t value)
{
    return value >= 0 && value <= INT_MAX;
}

static int64_t at_least_one(int64_t value)
{
    return value > 1 ? value : 1;
}

static int check_handle(cublasHandle_t handle, int pointer_mode)
{
    if (!handle)
        return CUBLAS_NOT_INITIALIZED;
    return handle->pointer_mode == pointer_mode ? CUBLAS_SUCCESS : CUBLAS_NOT_SUPPORTED;
}

/* ---- products ---- */

static bool are_types(int a, int b, int c, int compute)
{
    if (a == TYPE_64F)
        return b == a && c == a && compute == COMPUTE_64F;
    if (a != b || compute != COMPUTE_32F)
        return false;
    return a == TYPE_32F ? c == a : (a == TYPE_16F || a == TYPE_16BF) && (c == a || c == TYPE_32F);
}

static int check_product(cublasHandle_t handle, const sim_blas_call *call, int compute)
{
    const int status = check_handle(handle, POINTER_HOST);
    const int64_t rows_a = call->op_a == OP_N ? call->m : call->k, rows_b = call->op_b == OP_N ? call->k : call->n;
    if (status != CUBLAS_SUCCESS)
        return status;
    if (call->m < 0 || call->n < 0 || call->k < 0 || call->count < 0 || call->lda < at_least_one(rows_a) ||
        call->ldb < at_least_one(rows_b) || call->ldc < at_least_one(call->m))
        return CUBLAS_INVALID_VALUE;
    const bool small =
        fits(call->m) && fits(call->n) && fits(call->k) && fits(call->lda) && fits(call->ldb) && fits(call->ldc);
    return small && are_types(call->type_a, call->type_b, call->type_c, compute) ? CUBLAS_SUCCESS
                                                                                 : CUBLAS_NOT_SUPPORTED;
}

static double factor(const void *value, int compute)
{
    return compute == COMPUTE_64F ? *(const double *)value : (double)*(const float *)value;
}

static int submit_product(cublasHandle_t handle, sim_blas_kind kind, sim_blas_call *call, const void *alpha,
                          const void *beta, int compute)
{
    const int status = check_product(handle, call, compute);
    if (status != CUBLAS_SUCCESS || !call->m || !call->n || !call->count)
        return status;
    if (!alpha || !beta)
        return CUBLAS_INVALID_VALUE;
    call->alpha = factor(alpha, compute);
    call->beta = factor(beta, compute);
    return sim_blas_submit(handle, kind, call);
}

SIM_BLAS_EXPORT int cublasGemmEx_64(cublasHandle_t handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k,
                                    const void *alpha, const void *a, int type_a, int64_t lda, const void *b,
                                    int type_b, int64_t ldb, const void *beta, void *c, int type_c, int64_t ldc,
                                    int compute, int algorithm)
{
    (void)algorithm;
    sim_blas_call call = {
        m, n, k,      lda,    ldb,    ldc,  0,    0, 0, 1, 0, 0, (uintptr_t)a, (uintptr_t)b, (uintptr_t)c,
        0, 0, type_a, type_b, type_c, op_a, op_b, 0, 0, 0};
    return submit_product(handle, SIM_BLAS_GEMM, &call, alpha, beta, compute);
}

SIM_BLAS_EXPORT int cublasGemmStridedBatchedEx_64(cublasHandle_t handle, int op_a, int op_b, int64_t m, int64_t n,
                                                  int64_t k, const void *alpha, const void *a, int type_a, int64_t lda,
                                                  long long stride_a, const void *b, int type_b, int64_t ldb,
                                                  long long stride_b, const void *beta, void *c, int type_c,
                                                  int64_t ldc, long long stride_c, int64_t count, int compute,
                                                  int algorithm)
{
    (void)algorithm;
    sim_blas_call call = {m,
                          n,
                          k,
                          lda,
                          ldb,
                          ldc,
                          stride_a,
                          stride_b,
                          stride_c,
                          count,
                          0,
                          0,
                          (uintptr_t)a,
                          (uintptr_t)b,
                          (uintptr_t)c,
                          0,
                          0,
                          type_a,
                          type_b,
                          type_c,
                          op_a,
                          op_b,
                          0,
                          0,
                          0};
    if (stride_a < 0 || stride_b < 0 || stride_c < 0)
        return CUBLAS_NOT_SUPPORTED;
    return submit_product(handle, SIM_BLAS_GEMM, &call, alpha, beta, compute);
}

SIM_BLAS_EXPORT int cublasGemmBatchedEx_64(cublasHandle_t handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k,
                                           const void *alpha, const void *const *a, int type_a, int64_t lda,
                                           const void *const *b, int type_b, int64_t ldb, const void *beta,
                                           void *const *c, int type_c, int64_t ldc, int64_t count, int compute,
                                           int algorithm)
{
    int status = CUBLAS_SUCCESS;
    (void)algorithm;
    for (int64_t from = 0; status == CUBLAS_SUCCESS && (from < count || !from); from += SIM_BLAS_BATCH) {
        const int64_t some = count - from < SIM_BLAS_BATCH ? count - from : SIM_BLAS_BATCH;
        sim_blas_call call = {m,
                              n,
                              k,
                              lda,
                              ldb,
                              ldc,
                              0,
                              0,
                              0,
                              some,
                              0,
                              0,
                              (uintptr_t)(a + from),
                              (uintptr_t)(b + from),
                              (uintptr_t)(c + from),
                              0,
                              0,
                              type_a,
                              type_b,
                              type_c,
                              op_a,
                              op_b,
                              0,
                              0,
                              0};
        status = submit_product(handle, SIM_BLAS_GEMM_BATCHED, &call, alpha, beta, compute);
    }
    return status;
}

/* ---- vectors ---- */

static double factor_of_type(const void *value, int type)
{
    return factor(value, type == TYPE_64F ? COMPUTE_64F : COMPUTE_32F);
}

/* Checks sizes and steps of vectors. The stand-in has only steps above 0. */
static int check_vectors(int64_t n, int64_t step_x, int64_t step_y)
{
    if (!step_x || !step_y)
        return CUBLAS_INVALID_VALUE;
    return fits(n > 0 ? n : 0) && step_x > 0 && step_y > 0 && fits(step_x) && fits(step_y) ? CUBLAS_SUCCESS
                                                                                           : CUBLAS_NOT_SUPPORTED;
}

static int submit_vectors(cublasHandle_t handle, sim_blas_kind kind, sim_blas_call *call, const void *alpha)
{
    int status = check_handle(handle, kind == SIM_BLAS_DOT || kind == SIM_BLAS_NRM2 ? POINTER_DEVICE : POINTER_HOST);
    if (status == CUBLAS_SUCCESS)
        status = check_vectors(call->n, call->lda, call->ldb);
    if (status != CUBLAS_SUCCESS || call->n <= 0)
        return status;
    if (alpha)
        call->alpha = factor_of_type(alpha, call->type_a);
    return sim_blas_submit(handle, kind, call);
}

static int axpy(cublasHandle_t handle, int type, int64_t n, const void *alpha, const void *x, int64_t step_x, void *y,
                int64_t step_y)
{
    sim_blas_call call = {.n = n, .lda = step_x, .ldb = step_y, .a = (uintptr_t)x, .b = (uintptr_t)y, .type_a = type};
    return alpha ? submit_vectors(handle, SIM_BLAS_AXPY, &call, alpha) : CUBLAS_INVALID_VALUE;
}

SIM_BLAS_EXPORT int cublasSaxpy_v2_64(cublasHandle_t handle, int64_t n, const void *alpha, const void *x,
                                      int64_t step_x, void *y, int64_t step_y)
{
    return axpy(handle, TYPE_32F, n, alpha, x, step_x, y, step_y);
}

SIM_BLAS_EXPORT int cublasDaxpy_v2_64(cublasHandle_t handle, int64_t n, const void *alpha, const void *x,
                                      int64_t step_x, void *y, int64_t step_y)
{
    return axpy(handle, TYPE_64F, n, alpha, x, step_x, y, step_y);
}

static int scal(cublasHandle_t handle, int type, int64_t n, const void *alpha, void *x, int64_t step_x)
{
    sim_blas_call call = {.n = n, .lda = step_x, .ldb = 1, .a = (uintptr_t)x, .type_a = type};
    return alpha ? submit_vectors(handle, SIM_BLAS_SCAL, &call, alpha) : CUBLAS_INVALID_VALUE;
}

SIM_BLAS_EXPORT int cublasSscal_v2_64(cublasHandle_t handle, int64_t n, const void *alpha, void *x, int64_t step_x)
{
    return scal(handle, TYPE_32F, n, alpha, x, step_x);
}

SIM_BLAS_EXPORT int cublasDscal_v2_64(cublasHandle_t handle, int64_t n, const void *alpha, void *x, int64_t step_x)
{
    return scal(handle, TYPE_64F, n, alpha, x, step_x);
}

static int dot(cublasHandle_t handle, int type, int64_t n, const void *x, int64_t step_x, const void *y, int64_t step_y,
               void *result)
{
    sim_blas_call call = {.n = n,
                          .lda = step_x,
                          .ldb = step_y,
                          .a = (uintptr_t)x,
                          .b = (uintptr_t)y,
                          .c = (uintptr_t)result,
                          .type_a = type};
    return submit_vectors(handle, SIM_BLAS_DOT, &call, NULL);
}

SIM_BLAS_EXPORT int cublasSdot_v2_64(cublasHandle_t handle, int64_t n, const void *x, int64_t step_x, const void *y,
                                     int64_t step_y, void *result)
{
    return dot(handle, TYPE_32F, n, x, step_x, y, step_y, result);
}

SIM_BLAS_EXPORT int cublasDdot_v2_64(cublasHandle_t handle, int64_t n, const void *x, int64_t step_x, const void *y,
                                     int64_t step_y, void *result)
{
    return dot(handle, TYPE_64F, n, x, step_x, y, step_y, result);
}

static int nrm2(cublasHandle_t handle, int type, int64_t n, const void *x, int64_t step_x, void *result)
{
    sim_blas_call call = {.n = n, .lda = step_x, .ldb = 1, .a = (uintptr_t)x, .c = (uintptr_t)result, .type_a = type};
    return submit_vectors(handle, SIM_BLAS_NRM2, &call, NULL);
}

SIM_BLAS_EXPORT int cublasSnrm2_v2_64(cublasHandle_t handle, int64_t n, const void *x, int64_t step_x, void *result)
{
    return nrm2(handle, TYPE_32F, n, x, step_x, result);
}

SIM_BLAS_EXPORT int cublasDnrm2_v2_64(cublasHandle_t handle, int64_t n, const void *x, int64_t step_x, void *result)
{
    return nrm2(handle, TYPE_64F, n, x, step_x, result);
}

/* ---- matrices and vectors ---- */

/* Checks sizes m by n, and the leading dimension of a matrix of so many rows in column order. */
static int check_matrix(cublasHandle_t handle, int64_t m, int64_t n, int64_t rows, int64_t leading)
{
    const int status = check_handle(handle, POINTER_HOST);
    if (status != CUBLAS_SUCCESS)
        return status;
    if (m < 0 || n < 0 || leading < at_least_one(rows))
        return CUBLAS_INVALID_VALUE;
    return fits(m) && fits(n) && fits(leading) ? CUBLAS_SUCCESS : CUBLAS_NOT_SUPPORTED;
}

static int gemv(cublasHandle_t handle, int type, int op, int64_t m, int64_t n, const void *alpha, const void *a,
                int64_t lda, const void *x, int64_t step_x, const void *beta, void *y, int64_t step_y)
{
    int status = check_matrix(handle, m, n, m, lda);
    if (status == CUBLAS_SUCCESS)
        status = check_vectors(m, step_x, step_y);
    if (status != CUBLAS_SUCCESS || !m || !n)
        return status;
    if (!alpha || !beta)
        return CUBLAS_INVALID_VALUE;
    sim_blas_call call = {.m = m,
                          .n = n,
                          .lda = lda,
                          .ldb = step_x,
                          .ldc = step_y,
                          .alpha = factor_of_type(alpha, type),
                          .beta = factor_of_type(beta, type),
                          .a = (uintptr_t)a,
                          .b = (uintptr_t)x,
                          .c = (uintptr_t)y,
                          .type_a = type,
                          .op_a = op};
    return sim_blas_submit(handle, SIM_BLAS_GEMV, &call);
}

SIM_BLAS_EXPORT int cublasSgemv_v2_64(cublasHandle_t handle, int op, int64_t m, int64_t n, const void *alpha,
                                      const void *a, int64_t lda, const void *x, int64_t step_x, const void *beta,
                                      void *y, int64_t step_y)
{
    return gemv(handle, TYPE_32F, op, m, n, alpha, a, lda, x, step_x, beta, y, step_y);
}

SIM_BLAS_EXPORT int cublasDgemv_v2_64(cublasHandle_t handle, int op, int64_t m, int64_t n, const void *alpha,
                                      const void *a, int64_t lda, const void *x, int64_t step_x, const void *beta,
                                      void *y, int64_t step_y)
{
    return gemv(handle, TYPE_64F, op, m, n, alpha, a, lda, x, step_x, beta, y, step_y);
}

static int ger(cublasHandle_t handle, int type, int64_t m, int64_t n, const void *alpha, const void *x, int64_t step_x,
               const void *y, int64_t step_y, void *a, int64_t lda)
{
    int status = check_matrix(handle, m, n, m, lda);
    if (status == CUBLAS_SUCCESS)
        status = check_vectors(m, step_x, step_y);
    if (status != CUBLAS_SUCCESS || !m || !n)
        return status;
    if (!alpha)
        return CUBLAS_INVALID_VALUE;
    sim_blas_call call = {.m = m,
                          .n = n,
                          .lda = step_x,
                          .ldb = step_y,
                          .ldc = lda,
                          .alpha = factor_of_type(alpha, type),
                          .a = (uintptr_t)x,
                          .b = (uintptr_t)y,
                          .c = (uintptr_t)a,
                          .type_a = type};
    return sim_blas_submit(handle, SIM_BLAS_GER, &call);
}

SIM_BLAS_EXPORT int cublasSger_v2_64(cublasHandle_t handle, int64_t m, int64_t n, const void *alpha, const void *x,
                                     int64_t step_x, const void *y, int64_t step_y, void *a, int64_t lda)
{
    return ger(handle, TYPE_32F, m, n, alpha, x, step_x, y, step_y, a, lda);
}

SIM_BLAS_EXPORT int cublasDger_v2_64(cublasHandle_t handle, int64_t m, int64_t n, const void *alpha, const void *x,
                                     int64_t step_x, const void *y, int64_t step_y, void *a, int64_t lda)
{
    return ger(handle, TYPE_64F, m, n, alpha, x, step_x, y, step_y, a, lda);
}

/* cublasSideMode_t: 1 is right; cublasFillMode_t: 1 is upper; cublasDiagType_t: 1 is unit. */
static int trsm(cublasHandle_t handle, int type, int side, int fill, int op, int diagonal, int64_t m, int64_t n,
                const void *alpha, const void *a, int64_t lda, void *b, int64_t ldb)
{
    int status = check_matrix(handle, m, n, m, ldb);
    if (status == CUBLAS_SUCCESS)
        status = check_matrix(handle, m, n, side ? n : m, lda);
    if (status != CUBLAS_SUCCESS || !m || !n)
        return status;
    if (!alpha)
        return CUBLAS_INVALID_VALUE;
    sim_blas_call call = {.m = m,
                          .n = n,
                          .lda = lda,
                          .ldb = ldb,
                          .alpha = factor_of_type(alpha, type),
                          .a = (uintptr_t)a,
                          .b = (uintptr_t)b,
                          .type_a = type,
                          .op_a = op,
                          .right = side,
                          .upper = fill,
                          .unit = diagonal};
    return sim_blas_submit(handle, SIM_BLAS_TRSM, &call);
}

SIM_BLAS_EXPORT int cublasStrsm_v2_64(cublasHandle_t handle, int side, int fill, int op, int diagonal, int64_t m,
                                      int64_t n, const void *alpha, const void *a, int64_t lda, void *b, int64_t ldb)
{
    return trsm(handle, TYPE_32F, side, fill, op, diagonal, m, n, alpha, a, lda, b, ldb);
}

SIM_BLAS_EXPORT int cublasDtrsm_v2_64(cublasHandle_t handle, int side, int fill, int op, int diagonal, int64_t m,
                                      int64_t n, const void *alpha, const void *a, int64_t lda, void *b, int64_t ldb)
{
    return trsm(handle, TYPE_64F, side, fill, op, diagonal, m, n, alpha, a, lda, b, ldb);
}
