/* Every cuBLAS and cublasLt entry point that Strata calls, once, with the types of their binary interface (cublas_api.h
 * and cublasLt.h of CUDA 12 and 13): the machine that builds need not have those headers.
 *
 * STRATA_BLAS_ENTRY_POINTS(X) expands X(name, symbol, parameters) for each. All return a cublasStatus_t, except
 * status_name and status_text. */
#ifndef STRATA_DRIVER_BLAS_ENTRY_POINTS_H
#define STRATA_DRIVER_BLAS_ENTRY_POINTS_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* cublasHandle_t. It also serves as a cublasLtHandle_t (cublasLt.h, "cublasLtHandle_t"). */
typedef struct strata_cublas_context *strata_cublas_handle;

enum {
    STRATA_CUBLAS_SUCCESS = 0,
    STRATA_CUBLAS_EXECUTION_FAILED = 13,
    STRATA_CUBLAS_NOT_SUPPORTED = 15
};                                                                         /* cublasStatus_t */
enum { STRATA_CUBLAS_OP_N = 0, STRATA_CUBLAS_OP_T = 1 };                   /* cublasOperation_t */
enum { STRATA_CUBLAS_LOWER = 0, STRATA_CUBLAS_UPPER = 1 };                 /* cublasFillMode_t */
enum { STRATA_CUBLAS_LEFT = 0, STRATA_CUBLAS_RIGHT = 1 };                  /* cublasSideMode_t */
enum { STRATA_CUBLAS_NON_UNIT = 0, STRATA_CUBLAS_UNIT = 1 };               /* cublasDiagType_t */
enum { STRATA_CUBLAS_POINTER_HOST = 0, STRATA_CUBLAS_POINTER_DEVICE = 1 }; /* cublasPointerMode_t */
enum { STRATA_CUBLAS_COMPUTE_32F = 68, STRATA_CUBLAS_COMPUTE_64F = 70 };   /* cublasComputeType_t */
enum { STRATA_CUBLAS_GEMM_DEFAULT = -1 };                                  /* cublasGemmAlgo_t */
enum { STRATA_CUBLASLT_DESC_TRANSA = 3, STRATA_CUBLASLT_DESC_TRANSB = 4 }; /* cublasLtMatmulDescAttributes_t */
/* cublasLtMatmulPreferenceAttributes_t; MIN_ALIGNMENT of A, B, C and D follow each other */
enum { STRATA_CUBLASLT_PREF_MAX_WORKSPACE_BYTES = 1, STRATA_CUBLASLT_PREF_MIN_ALIGNMENT_A_BYTES = 5 };
enum {
    STRATA_LIBRARY_MAJOR_VERSION = 0,
    STRATA_LIBRARY_MINOR_VERSION,
    STRATA_LIBRARY_PATCH_LEVEL
}; /* libraryPropertyType */

/* cudaDataType */
enum {
    STRATA_CUDA_R_32F = 0,
    STRATA_CUDA_R_64F = 1,
    STRATA_CUDA_R_16F = 2,
    STRATA_CUDA_R_16BF = 14,
    STRATA_CUDA_R_8F_E4M3 = 28,
    STRATA_CUDA_R_8F_E5M2 = 29
};

/* cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t */
typedef struct strata_cublaslt_desc *strata_cublaslt_desc;
typedef struct strata_cublaslt_layout *strata_cublaslt_layout;
typedef struct strata_cublaslt_preference *strata_cublaslt_preference;

/* cublasLtMatmulHeuristicResult_t */
typedef struct strata_cublaslt_heuristic {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} strata_cublaslt_heuristic;

/* clang-format off */
#define STRATA_BLAS_ENTRY_POINTS(X)                                                                                                \
    X(get_property, "cublasGetProperty", (int which, int *value))                                                                  \
    X(create, "cublasCreate_v2", (strata_cublas_handle *handle))                                                                   \
    X(destroy, "cublasDestroy_v2", (strata_cublas_handle handle))                                                                  \
    X(set_stream, "cublasSetStream_v2", (strata_cublas_handle handle, CUstream stream))                                            \
    X(set_workspace, "cublasSetWorkspace_v2", (strata_cublas_handle handle, void *workspace, size_t bytes))                        \
    X(set_pointer_mode, "cublasSetPointerMode_v2", (strata_cublas_handle handle, int mode))                                        \
    /* products of matrices */                                                                                                     \
    X(gemm, "cublasGemmEx_64", (strata_cublas_handle handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int type_a, int64_t lda, const void *b, int type_b, int64_t ldb, const void *beta, void *c, int type_c, int64_t ldc, int compute, int algorithm)) \
    X(gemm_strided, "cublasGemmStridedBatchedEx_64", (strata_cublas_handle handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int type_a, int64_t lda, long long stride_a, const void *b, int type_b, int64_t ldb, long long stride_b, const void *beta, void *c, int type_c, int64_t ldc, long long stride_c, int64_t batch, int compute, int algorithm)) \
    X(gemm_batched, "cublasGemmBatchedEx_64", (strata_cublas_handle handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void *alpha, const void *const *a, int type_a, int64_t lda, const void *const *b, int type_b, int64_t ldb, const void *beta, void *const *c, int type_c, int64_t ldc, int64_t batch, int compute, int algorithm)) \
    /* vectors */                                                                                                                  \
    X(saxpy, "cublasSaxpy_v2_64", (strata_cublas_handle handle, int64_t n, const void *alpha, const void *x, int64_t step_x, void *y, int64_t step_y)) \
    X(daxpy, "cublasDaxpy_v2_64", (strata_cublas_handle handle, int64_t n, const void *alpha, const void *x, int64_t step_x, void *y, int64_t step_y)) \
    X(sdot, "cublasSdot_v2_64", (strata_cublas_handle handle, int64_t n, const void *x, int64_t step_x, const void *y, int64_t step_y, void *result)) \
    X(ddot, "cublasDdot_v2_64", (strata_cublas_handle handle, int64_t n, const void *x, int64_t step_x, const void *y, int64_t step_y, void *result)) \
    X(snrm2, "cublasSnrm2_v2_64", (strata_cublas_handle handle, int64_t n, const void *x, int64_t step_x, void *result))           \
    X(dnrm2, "cublasDnrm2_v2_64", (strata_cublas_handle handle, int64_t n, const void *x, int64_t step_x, void *result))           \
    X(sscal, "cublasSscal_v2_64", (strata_cublas_handle handle, int64_t n, const void *alpha, void *x, int64_t step_x))            \
    X(dscal, "cublasDscal_v2_64", (strata_cublas_handle handle, int64_t n, const void *alpha, void *x, int64_t step_x))            \
    /* a matrix and vectors, triangular systems */                                                                                 \
    X(sgemv, "cublasSgemv_v2_64", (strata_cublas_handle handle, int op, int64_t m, int64_t n, const void *alpha, const void *a, int64_t lda, const void *x, int64_t step_x, const void *beta, void *y, int64_t step_y)) \
    X(dgemv, "cublasDgemv_v2_64", (strata_cublas_handle handle, int op, int64_t m, int64_t n, const void *alpha, const void *a, int64_t lda, const void *x, int64_t step_x, const void *beta, void *y, int64_t step_y)) \
    X(sger, "cublasSger_v2_64", (strata_cublas_handle handle, int64_t m, int64_t n, const void *alpha, const void *x, int64_t step_x, const void *y, int64_t step_y, void *a, int64_t lda)) \
    X(dger, "cublasDger_v2_64", (strata_cublas_handle handle, int64_t m, int64_t n, const void *alpha, const void *x, int64_t step_x, const void *y, int64_t step_y, void *a, int64_t lda)) \
    X(strsm, "cublasStrsm_v2_64", (strata_cublas_handle handle, int side, int fill, int op, int diagonal, int64_t m, int64_t n, const void *alpha, const void *a, int64_t lda, void *b, int64_t ldb)) \
    X(dtrsm, "cublasDtrsm_v2_64", (strata_cublas_handle handle, int side, int fill, int op, int diagonal, int64_t m, int64_t n, const void *alpha, const void *a, int64_t lda, void *b, int64_t ldb)) \
    /* cublasLt, a library that cuBLAS itself loads */                                                                             \
    X(lt_desc_create, "cublasLtMatmulDescCreate", (strata_cublaslt_desc *desc, int compute, int scale_type))                       \
    X(lt_desc_destroy, "cublasLtMatmulDescDestroy", (strata_cublaslt_desc desc))                                                   \
    X(lt_desc_set, "cublasLtMatmulDescSetAttribute", (strata_cublaslt_desc desc, int which, const void *value, size_t bytes))      \
    X(lt_layout_create, "cublasLtMatrixLayoutCreate", (strata_cublaslt_layout *layout, int type, uint64_t rows, uint64_t columns, int64_t leading)) \
    X(lt_layout_destroy, "cublasLtMatrixLayoutDestroy", (strata_cublaslt_layout layout))                                           \
    X(lt_preference_create, "cublasLtMatmulPreferenceCreate", (strata_cublaslt_preference *preference))                            \
    X(lt_preference_destroy, "cublasLtMatmulPreferenceDestroy", (strata_cublaslt_preference preference))                           \
    X(lt_preference_set, "cublasLtMatmulPreferenceSetAttribute", (strata_cublaslt_preference preference, int which, const void *value, size_t bytes)) \
    X(lt_heuristic, "cublasLtMatmulAlgoGetHeuristic", (strata_cublas_handle handle, strata_cublaslt_desc desc, strata_cublaslt_layout a, strata_cublaslt_layout b, strata_cublaslt_layout c, strata_cublaslt_layout d, strata_cublaslt_preference preference, int most, strata_cublaslt_heuristic *results, int *count)) \
    X(lt_matmul, "cublasLtMatmul", (strata_cublas_handle handle, strata_cublaslt_desc desc, const void *alpha, const void *a, strata_cublaslt_layout layout_a, const void *b, strata_cublaslt_layout layout_b, const void *beta, const void *c, strata_cublaslt_layout layout_c, void *d, strata_cublaslt_layout layout_d, const uint64_t *algorithm, void *workspace, size_t workspace_bytes, CUstream stream))
/* clang-format on */

#endif
