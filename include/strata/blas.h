/* Products of matrices and vectors by cuBLAS, on memory of a runtime, in the order of its uses.
 *
 * cuBLAS is opened at run time, version 12 or 13, and never linked. STRATA_BLAS names the library: a path, or auto, the
 * default. With the simulated driver auto is a stand-in, which computes with a BLAS of the CPU (docs/blas.md).
 *
 * Operands are references or blocks. A call checks their types and sizes before anything is submitted, makes the stream
 * wait for conflicting uses, calls cuBLAS, and notes its own uses, as a launch does (launch.h). A failed call notes
 * none. Inside a capture of the runtime (graph.h) the work becomes the graph's, with a workspace of the capture's pool.
 *
 * A handle has one workspace, which each call that is not captured writes: calls on several streams run one after the
 * other on the device. A handle for each stream lets them overlap. Any thread may call; calls with one handle take
 * turns while they are submitted. */
#ifndef STRATA_BLAS_H
#define STRATA_BLAS_H

#include <strata/launch.h>
#include <strata/ref.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_blas strata_blas;
typedef struct strata_blas_batch strata_blas_batch;

/* ---- handles ---- */

typedef struct strata_blas_options {
    uint32_t size;
    size_t workspace_bytes;  /* of the stack, with the tag "blas workspace"; 0: 32 MiB */
    strata_launch_mode mode; /* what becomes of memory that cannot be tracked: launch.h */
} strata_blas_options;

/* Opens cuBLAS if need be, and makes a handle of it. The workspace is allocated for work on `stream`; calls may name
 * any stream. NULL options: the defaults. On failure *out is NULL. cuBLAS itself takes memory of the driver for its
 * kernels, which no budget sees. Errors: UNSUPPORTED (no library that could be used; the message says what to install),
 * LIBRARY, STALE, OUT_OF_MEMORY, OUT_OF_BUDGET, OUT_OF_HOST_MEMORY, STREAM_CAPTURE (the stream is being captured),
 * DRIVER. */
STRATA_API strata_status strata_blas_create(strata_runtime *runtime, CUstream stream,
                                            const strata_blas_options *options, strata_blas **out);

/* Destroys the handle, whose batches are gone already. The workspace is freed after all work that uses it. cuBLAS waits
 * for the device here. Another thread uses the handle no more. NULL is ignored. Errors: LIBRARY, and those of
 * strata_ref_release; the handle is gone all the same. */
STRATA_API strata_status strata_blas_destroy(strata_blas *blas);

typedef struct strata_blas_info {
    const char *library;    /* as it was opened: "libcublas.so.13" */
    const char *version;    /* "13.1.0" */
    size_t workspace_bytes; /* what the handle has */
} strata_blas_info;

/* The strings live as long as the process. Errors: INVALID_VALUE. */
STRATA_API strata_status strata_blas_get_info(const strata_blas *blas, strata_blas_info *info);

/* ---- operands ---- */

/* A matrix, or several, or a vector, or one value: in a reference, a block, or a batch, of which one is set. */
typedef struct strata_blas_operand {
    strata_ref *ref;
    const strata_block *block;
    const strata_blas_batch *batch; /* of strata_blas_gemm */
    strata_element type;            /* of a block's elements; else NONE, or the reference's or batch's own */
    size_t offset;                  /* elements before the first; not of a batch */
    size_t leading;                 /* of a matrix: elements from one row (column) to the next; 0: no gap */
    size_t stride;                  /* elements from one matrix to the next, of a call on several */
    size_t step;                    /* of a vector: elements from one to the next; 0: 1 */
} strata_blas_operand;

static inline strata_blas_operand strata_blas_of_ref(strata_ref *ref)
{
    const strata_blas_operand operand = {ref, NULL, NULL, STRATA_ELEMENT_NONE, 0, 0, 0, 0};
    return operand;
}

/* The block's facts are read during the call alone. */
static inline strata_blas_operand strata_blas_of_block(const strata_block *block, strata_element type)
{
    const strata_blas_operand operand = {NULL, block, NULL, type, 0, 0, 0, 0};
    return operand;
}

static inline strata_blas_operand strata_blas_of_batch(const strata_blas_batch *batch)
{
    const strata_blas_operand operand = {NULL, NULL, batch, STRATA_ELEMENT_NONE, 0, 0, 0, 0};
    return operand;
}

/* Makes a batch of `count` matrices anywhere in memory, references or blocks of one type, each with its own offset; the
 * other members are ignored. Their addresses are written to the device, in the order of `stream`; work that names the
 * batch waits for that. The batch holds the references until it is destroyed. Make it before a capture in which it is
 * used. On failure *out is NULL. Errors: INVALID_VALUE (none, types that differ, an operand that is none), STALE,
 * STREAM_CAPTURE (the stream is being captured), and those of strata_ref_allocate. */
STRATA_API strata_status strata_blas_batch_create(strata_blas *blas, const strata_blas_operand *operands, size_t count,
                                                  CUstream stream, strata_blas_batch **out);

/* The addresses are freed after all work that uses them. NULL is ignored. Errors: those of strata_ref_release. */
STRATA_API strata_status strata_blas_batch_destroy(strata_blas_batch *batch);

/* 0 for NULL. */
STRATA_API size_t strata_blas_batch_count(const strata_blas_batch *batch);

/* ---- matrices ---- */

/* How the elements of matrices lie in memory. Each call says it. */
typedef enum strata_blas_order {
    STRATA_BLAS_ORDER_NONE = 0, /* INVALID_VALUE */
    STRATA_BLAS_ROWS,           /* a row's elements stand together, as in C */
    STRATA_BLAS_COLUMNS,        /* a column's do, as in Fortran and cuBLAS */
} strata_blas_order;

/* C = alpha * op(A) * op(B) + beta * C, where op(A) is m by k, op(B) is k by n, and op transposes or not. */
typedef struct strata_blas_gemm_call {
    uint32_t size;
    strata_blas_order order;
    bool transpose_a, transpose_b;
    size_t m, n, k;
    double alpha, beta; /* beta 0: C is not read */
    strata_blas_operand a, b, c;
    size_t count; /* of matrices: 0 is 1. With it A, B and C have strides, or all three are batches of that many */
} strata_blas_gemm_call;

/* Types of A and B, and of C:
 *
 *     f32           f32
 *     f64           f64
 *     f16           f16, f32
 *     bf16          bf16, f32
 *     f8e4m3, f8e5m2 (not both f8e5m2)    bf16, f16, f32; one matrix
 *
 * Sums are kept in f32, of f64 in f64; alpha and beta are rounded to that. f8 is multiplied by cublasLt where the
 * device can: m, n and k are multiples of 16, addresses of 16 bytes, and rows of op(A) and columns of op(B) stand
 * together in memory: transpose_b alone in row order, transpose_a alone in column order. A stride of 0 in A or B means
 * one matrix for all; the matrices of C do not overlap. C does not overlap A or B; that is not checked. With m or n 0
 * nothing is done.
 *
 * Errors: INVALID_VALUE (types, sizes that do not fit, a leading dimension below a row or column), LIBRARY (cuBLAS
 * failed: its text is in the message), UNSUPPORTED (no f8 on this device or in this form), those of strata_launch_use,
 * strata_launch_use_ref and strata_launch_preflight. The other calls below have the same errors. */
STRATA_API strata_status strata_blas_gemm(strata_blas *blas, const strata_blas_gemm_call *call, CUstream stream);

/* y = alpha * op(A) * x + beta * y, where A is m by n. f32 or f64, as all below. With m or n 0 nothing is done, as in
 * any BLAS. */
typedef struct strata_blas_gemv_call {
    uint32_t size;
    strata_blas_order order;
    bool transpose;
    size_t m, n;
    double alpha, beta; /* beta 0: y is not read */
    strata_blas_operand a, x, y;
} strata_blas_gemv_call;
STRATA_API strata_status strata_blas_gemv(strata_blas *blas, const strata_blas_gemv_call *call, CUstream stream);

/* A = alpha * x * y' + A, where A is m by n and y' is y as a row. */
typedef struct strata_blas_ger_call {
    uint32_t size;
    strata_blas_order order;
    size_t m, n;
    double alpha;
    strata_blas_operand x, y, a;
} strata_blas_ger_call;
STRATA_API strata_status strata_blas_ger(strata_blas *blas, const strata_blas_ger_call *call, CUstream stream);

/* Solves op(A) * X = alpha * B, or X * op(A) = alpha * B with `right`, and puts X in the place of B, which is m by n. A
 * is a triangle of m or n rows; its other half is not read. */
typedef struct strata_blas_trsm_call {
    uint32_t size;
    strata_blas_order order;
    bool right;
    bool upper;
    bool transpose;
    bool unit_diagonal; /* the diagonal is 1, and not read */
    size_t m, n;
    double alpha;
    strata_blas_operand a, b;
} strata_blas_trsm_call;
STRATA_API strata_status strata_blas_trsm(strata_blas *blas, const strata_blas_trsm_call *call, CUstream stream);

/* ---- vectors ---- */

/* y = alpha * x + y. */
STRATA_API strata_status strata_blas_axpy(strata_blas *blas, size_t n, double alpha, const strata_blas_operand *x,
                                          const strata_blas_operand *y, CUstream stream);

/* x = alpha * x. */
STRATA_API strata_status strata_blas_scal(strata_blas *blas, size_t n, double alpha, const strata_blas_operand *x,
                                          CUstream stream);

/* The sum of the products of x and y, and the Euclidean norm of x, written to one element of their type. Of no
 * elements: 0. */
STRATA_API strata_status strata_blas_dot(strata_blas *blas, size_t n, const strata_blas_operand *x,
                                         const strata_blas_operand *y, const strata_blas_operand *result,
                                         CUstream stream);
STRATA_API strata_status strata_blas_nrm2(strata_blas *blas, size_t n, const strata_blas_operand *x,
                                          const strata_blas_operand *result, CUstream stream);

/* As above, to the host: they wait for the stream. *out is 0 on failure. Errors: also STREAM_CAPTURE. */
STRATA_API strata_status strata_blas_dot_value(strata_blas *blas, size_t n, const strata_blas_operand *x,
                                               const strata_blas_operand *y, CUstream stream, double *out);
STRATA_API strata_status strata_blas_nrm2_value(strata_blas *blas, size_t n, const strata_blas_operand *x,
                                                CUstream stream, double *out);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_blas_create(runtime, stream, options, out) \
    strata_blas_create(runtime, strata_stream_as_meant(stream), options, out)
#define strata_blas_batch_create(blas, operands, count, stream, out) \
    strata_blas_batch_create(blas, operands, count, strata_stream_as_meant(stream), out)
#define strata_blas_gemm(blas, call, stream) strata_blas_gemm(blas, call, strata_stream_as_meant(stream))
#define strata_blas_gemv(blas, call, stream) strata_blas_gemv(blas, call, strata_stream_as_meant(stream))
#define strata_blas_ger(blas, call, stream)  strata_blas_ger(blas, call, strata_stream_as_meant(stream))
#define strata_blas_trsm(blas, call, stream) strata_blas_trsm(blas, call, strata_stream_as_meant(stream))
#define strata_blas_axpy(blas, n, alpha, x, y, stream) \
    strata_blas_axpy(blas, n, alpha, x, y, strata_stream_as_meant(stream))
#define strata_blas_scal(blas, n, alpha, x, stream) strata_blas_scal(blas, n, alpha, x, strata_stream_as_meant(stream))
#define strata_blas_dot(blas, n, x, y, result, stream) \
    strata_blas_dot(blas, n, x, y, result, strata_stream_as_meant(stream))
#define strata_blas_nrm2(blas, n, x, result, stream) \
    strata_blas_nrm2(blas, n, x, result, strata_stream_as_meant(stream))
#define strata_blas_dot_value(blas, n, x, y, stream, out) \
    strata_blas_dot_value(blas, n, x, y, strata_stream_as_meant(stream), out)
#define strata_blas_nrm2_value(blas, n, x, stream, out) \
    strata_blas_nrm2_value(blas, n, x, strata_stream_as_meant(stream), out)
#endif

#ifdef __cplusplus
}
#endif

#endif
