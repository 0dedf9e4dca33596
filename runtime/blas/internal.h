/* What the files of this folder share: the handle, operands as they were checked, and the submission of work. */
#ifndef STRATA_RUNTIME_BLAS_INTERNAL_H
#define STRATA_RUNTIME_BLAS_INTERNAL_H

#include "core/base/error.h"
#include "core/base/lock.h"
#include "driver/blas.h"
#include "runtime/runtime.h"

#include <strata/blas.h>

struct strata_blas {
    strata_runtime *runtime; /* these are constant; the runtime exists while the workspace does */
    const strata_blas_library *library;
    strata_ref *workspace;
    size_t workspace_bytes;
    strata_launch_mode mode;
    strata_lock lock;            /* held from a call's waits to its record */
    strata_cublas_handle handle; /* used under the lock */
};

struct strata_blas_batch {
    strata_runtime *runtime; /* all constant */
    strata_ref *pointers;    /* U64, on the device */
    size_t count;
    strata_element type;
    size_t elements; /* from its address on, the fewest of all members */
    strata_blas_operand *operands;
    strata_block *blocks; /* of the operands that are blocks, by index */
};

/* What a call knows of an operand. */
typedef struct blas_memory {
    CUdeviceptr address; /* of the first element; for a batch, of its pointers */
    strata_element type;
    size_t elements; /* from there on */
} blas_memory;

/* Finds an operand's memory. `name` is for messages: "A". Errors: INVALID_VALUE, STALE. */
strata_status blas_operand_resolve(const strata_blas_operand *operand, const char *name, blas_memory *out);

/* As blas_operand_resolve, for elements of f32 or f64. The second also checks n elements at the operand's step, and
 * writes the step. */
strata_status blas_operand_resolve_real(const strata_blas_operand *operand, const char *name, strata_element type,
                                        blas_memory *out);
strata_status blas_vector_resolve(const strata_blas_operand *operand, const char *name, strata_element type, size_t n,
                                  blas_memory *out, int64_t *step);

/* Checks `outer` rows (or columns) of `inner` elements each; writes the leading dimension. For several matrices
 * `matrices` is above 1, and the operand's stride counts. */
strata_status blas_matrix_check(const strata_blas_operand *operand, const char *name, const blas_memory *memory,
                                size_t outer, size_t inner, size_t matrices, int64_t *leading);

/* Names the uses of the operand's memory in the launch. */
strata_status blas_operand_use(strata_launch *launch, const strata_blas_operand *operand, strata_access access);

typedef struct blas_use {
    const strata_blas_operand *operand;
    strata_access access;
} blas_use;

/* Where the work goes. */
typedef struct blas_place {
    CUstream stream;
    CUdeviceptr workspace;
    size_t workspace_bytes;
} blas_place;

/* Work for the device: what it uses, and the function that submits it through the library. */
typedef struct blas_work {
    const blas_use *uses;
    size_t count;
    bool result_on_device; /* the library writes a result through a pointer */
    /* Returns the library's status, and the name of the function that gave it. The handle's stream and workspace are
     * set, and its lock is held. */
    int (*submit)(const strata_blas *blas, const void *data, const blas_place *place, const char **function);
    const void *data;
} blas_work;

strata_status blas_submit(strata_blas *blas, const blas_work *work, CUstream stream);

/* The head of each call: the handle, its arguments, and the options of the call, copied into `into`. */
strata_status blas_check(const strata_blas *blas, const char *call);
strata_status blas_read_call(const strata_blas *blas, const char *name, const void *given, void *into, size_t known);

/* STREAM_CAPTURE if the stream is being captured, by Strata or another; `what` begins the message, as "a batch is
 * made". DRIVER if the driver does not say. */
strata_status blas_check_not_captured(const strata_runtime *runtime, CUstream stream, const char *what);

strata_status blas_check_order(strata_blas_order order, const char *name);

/* Raises LIBRARY, with the library's own text. */
strata_status blas_fail(const strata_blas *blas, int status, const char *function);

/* alpha or beta, in the type in which the library adds up. */
typedef union blas_factor {
    float single;
    double wide;
} blas_factor;
blas_factor blas_factor_of(double value, bool wide);

/* A product as cuBLAS takes it, in column order. Types are those of the library. */
typedef struct blas_product {
    int op_a, op_b;
    int64_t m, n, k;
    blas_factor alpha, beta;
    CUdeviceptr a, b, c;
    int type_a, type_b, type_c;
    int64_t lda, ldb, ldc;
    long long stride_a, stride_b, stride_c;
    int64_t count;
    bool batched;
    int compute;
} blas_product;

/* blas_work.submit for a product of f8, by cublasLt. */
int blas_submit_lt(const strata_blas *blas, const void *product, const blas_place *place, const char **function);

#endif
