/* Requests to a device service for products of matrices and vectors (blas.h), computed by the service's own handle.
 *
 * Operands are references; types and sizes are checked against them before anything is submitted. A service opens the
 * libraries of strata_service_options.libraries with its context, or else "blas" with the first such request. */
#ifndef STRATA_SERVICE_BLAS_H
#define STRATA_SERVICE_BLAS_H

#include <strata/blas.h>
#include <strata/libraries.h>
#include <strata/service.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_blas_routine {
    STRATA_BLAS_GEMM = 0,
    STRATA_BLAS_GEMV,
    STRATA_BLAS_GER,
    STRATA_BLAS_TRSM,
    STRATA_BLAS_AXPY,
    STRATA_BLAS_SCAL,
    STRATA_BLAS_DOT,
    STRATA_BLAS_NRM2,
} strata_blas_routine;

/* Of axpy, scal, dot and nrm2; what the routine does not have is ignored. */
typedef struct strata_blas_vectors_call {
    size_t n;
    double alpha;
    strata_blas_operand x, y, result;
} strata_blas_vectors_call;

/* The member of the routine is read. */
typedef struct strata_service_blas_call {
    uint32_t size;
    strata_blas_routine routine;
    union {
        strata_blas_gemm_call gemm;
        strata_blas_gemv_call gemv;
        strata_blas_ger_call ger;
        strata_blas_trsm_call trsm;
        strata_blas_vectors_call vectors;
    } call;
} strata_service_blas_call;

/* The answer comes when the work is complete. Errors: as any request, and INVALID_VALUE (an operand is no reference;
 * no such routine). The answer has the others, of the calls in blas.h. */
STRATA_API strata_status strata_service_blas(strata_service *service, const strata_service_blas_call *call,
                                             const strata_send_options *send, strata_future **out);

/* C = alpha * op(A) * op(B) + beta * C of f32 matrices: strata_service_blas with gemm. */
STRATA_API strata_status strata_service_sgemm(strata_service *service, const strata_blas_gemm_call *call,
                                              const strata_send_options *send, strata_future **out);

/* The handle of a library that the service has opened, by its name (libraries.h): answered at once. *out is zero, and
 * the status SUCCESS, while the context is not ready ("none"). The handle is good until the generation moves on; work
 * with it belongs into strata_service_run. Errors: INVALID_VALUE (the service has not opened it), UNSUPPORTED
 * (isolated). */
STRATA_API strata_status strata_service_find_library(strata_service *service, const char *name, strata_library *out);

#ifdef __cplusplus
}
#endif

#endif
