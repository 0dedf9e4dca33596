/* A stand-in for cuBLAS on the simulated driver: a library with the entry points of cuBLAS that Strata calls, which
 * computes with a BLAS of the CPU.
 *
 * Each entry point launches a host kernel of its own (strata/sim/kernel.h) by the public functions of the simulated
 * driver, so that streams, captures, graphs, seeds and the checker take its work like any other. The kernel tells what
 * it reads and writes: each operand from its first to its last element, gaps included, and the workspace as written,
 * which cuBLAS may write. */
#ifndef STRATA_SIM_BLAS_BLAS_H
#define STRATA_SIM_BLAS_BLAS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <strata/sim.h>

#define SIM_BLAS_EXPORT __attribute__((visibility("default")))

/* Values of cublas_api.h and library_types.h of CUDA 12 and 13. */
enum {
    CUBLAS_SUCCESS = 0,
    CUBLAS_NOT_INITIALIZED = 1,
    CUBLAS_ALLOC_FAILED = 3,
    CUBLAS_INVALID_VALUE = 7,
    CUBLAS_EXECUTION_FAILED = 13,
    CUBLAS_NOT_SUPPORTED = 15,
};
enum { OP_N = 0, OP_T = 1, OP_C = 2 };
enum { POINTER_HOST = 0, POINTER_DEVICE = 1 };
enum { COMPUTE_32F = 68, COMPUTE_64F = 70 };
enum { TYPE_32F = 0, TYPE_64F = 1, TYPE_16F = 2, TYPE_16BF = 14, TYPE_8F_E4M3 = 28, TYPE_8F_E5M2 = 29 };

typedef enum sim_blas_kind {
    SIM_BLAS_GEMM = 0,
    SIM_BLAS_GEMM_BATCHED,
    SIM_BLAS_AXPY,
    SIM_BLAS_SCAL,
    SIM_BLAS_DOT,
    SIM_BLAS_NRM2,
    SIM_BLAS_GEMV,
    SIM_BLAS_GER,
    SIM_BLAS_TRSM,
    SIM_BLAS_KINDS
} sim_blas_kind;

/* Matrices that one launch of a batch multiplies. Each takes four of a launch's ranges (C is read and written); the
 * pointers and the workspace take four more. */
enum { SIM_BLAS_BATCH = (STRATA_SIM_MOST_RANGES - 4) / 4 };

/* The parameter of every kernel. Matrices are in column order; x, y and the result are in a, b and c. */
typedef struct sim_blas_call {
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* or the steps of vectors */
    int64_t stride_a, stride_b, stride_c;
    int64_t count; /* matrices */
    double alpha, beta;
    uint64_t a, b, c; /* addresses; of a batch, of its pointers */
    uint64_t workspace, workspace_bytes;
    int32_t type_a, type_b, type_c;
    int32_t op_a, op_b;
    int32_t right, upper, unit; /* of trsm */
} sim_blas_call;

/* cublasContext */
typedef struct sim_blas_handle {
    CUmodule module; /* of the context in which the handle was made; these are constant */
    CUfunction functions[SIM_BLAS_KINDS];
    CUstream stream; /* the handle is one thread's at a time, as cuBLAS's is; these are its settings */
    int pointer_mode;
    uint64_t workspace, workspace_bytes;
} sim_blas_handle;

/* Launches the kernel of this kind on the handle's stream. Returns a status of cuBLAS. */
int sim_blas_submit(const sim_blas_handle *handle, sim_blas_kind kind, sim_blas_call *call);
int sim_blas_status_of(CUresult result);

/* Host kernels, by kind. */
extern const strata_sim_kernel sim_blas_kernels[SIM_BLAS_KINDS];
extern const char *const sim_blas_kernel_names[SIM_BLAS_KINDS];

/* ---- types of elements (types.c) ---- */

size_t sim_blas_type_bytes(int type); /* 0: none that the stand-in has */
float sim_blas_to_single(int type, const void *element);
void sim_blas_from_single(int type, float value, void *element); /* f32, f16 and bf16 */

/* ---- the BLAS of the CPU (cpu.c): OpenBLAS, opened at run time ---- */

enum { CPU_COLUMNS = 102, CPU_PLAIN = 111, CPU_TRANSPOSED = 112, CPU_UPPER = 121, CPU_LOWER = 122 };
enum { CPU_NON_UNIT = 131, CPU_UNIT = 132, CPU_LEFT = 141, CPU_RIGHT = 142 };

/* clang-format off */
#define SIM_BLAS_CPU(X) \
    X(void, sgemm, (int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)) \
    X(void, dgemm, (int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda, const double *b, int ldb, double beta, double *c, int ldc)) \
    X(void, saxpy, (int n, float alpha, const float *x, int step_x, float *y, int step_y)) \
    X(void, daxpy, (int n, double alpha, const double *x, int step_x, double *y, int step_y)) \
    X(void, sscal, (int n, float alpha, float *x, int step_x)) \
    X(void, dscal, (int n, double alpha, double *x, int step_x)) \
    X(float, sdot, (int n, const float *x, int step_x, const float *y, int step_y)) \
    X(double, ddot, (int n, const double *x, int step_x, const double *y, int step_y)) \
    X(float, snrm2, (int n, const float *x, int step_x)) \
    X(double, dnrm2, (int n, const double *x, int step_x)) \
    X(void, sgemv, (int order, int ta, int m, int n, float alpha, const float *a, int lda, const float *x, int step_x, float beta, float *y, int step_y)) \
    X(void, dgemv, (int order, int ta, int m, int n, double alpha, const double *a, int lda, const double *x, int step_x, double beta, double *y, int step_y)) \
    X(void, sger, (int order, int m, int n, float alpha, const float *x, int step_x, const float *y, int step_y, float *a, int lda)) \
    X(void, dger, (int order, int m, int n, double alpha, const double *x, int step_x, const double *y, int step_y, double *a, int lda)) \
    X(void, strsm, (int order, int side, int fill, int ta, int diagonal, int m, int n, float alpha, const float *a, int lda, float *b, int ldb)) \
    X(void, dtrsm, (int order, int side, int fill, int ta, int diagonal, int m, int n, double alpha, const double *a, int lda, double *b, int ldb))
/* clang-format on */

typedef struct sim_blas_cpu_table {
#define SIM_BLAS_CPU_FIELD(type, name, parameters) type(*name) parameters;
    SIM_BLAS_CPU(SIM_BLAS_CPU_FIELD)
#undef SIM_BLAS_CPU_FIELD
} sim_blas_cpu_table;

/* Filled before the first handle exists; constant afterwards. */
extern sim_blas_cpu_table sim_blas_cpu;

/* Opens it once, for the process. False: sim_blas_cpu_missing has the reason. Any thread. */
bool sim_blas_cpu_open(void);
const char *sim_blas_cpu_missing(void);

#endif
