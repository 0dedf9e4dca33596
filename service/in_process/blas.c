/* The service's libraries, and requests for cuBLAS. */
#include "core/base/error.h"
#include "service/in_process/in_process.h"

strata_status service_libraries_open(strata_service *service, const char *names)
{
    strata_libraries *libraries;
    const strata_status status =
        strata_libraries_open(service->context->runtime, service->snapshot.stream, names, &libraries);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&service->lock);
    service->libraries = libraries;
    strata_lock_release(&service->lock);
    return STRATA_SUCCESS;
}

void service_libraries_close(strata_service *service)
{
    strata_lock_take(&service->lock);
    strata_libraries *libraries = service->libraries;
    service->libraries = NULL;
    strata_lock_release(&service->lock);
    strata_libraries_close(libraries);
}

static strata_status compute(strata_blas *blas, const strata_service_blas_call *call, CUstream stream)
{
    const strata_blas_vectors_call *vectors = &call->call.vectors;
    switch (call->routine) {
    case STRATA_BLAS_GEMM:
        return strata_blas_gemm(blas, &call->call.gemm, stream);
    case STRATA_BLAS_GEMV:
        return strata_blas_gemv(blas, &call->call.gemv, stream);
    case STRATA_BLAS_GER:
        return strata_blas_ger(blas, &call->call.ger, stream);
    case STRATA_BLAS_TRSM:
        return strata_blas_trsm(blas, &call->call.trsm, stream);
    case STRATA_BLAS_AXPY:
        return strata_blas_axpy(blas, vectors->n, vectors->alpha, &vectors->x, &vectors->y, stream);
    case STRATA_BLAS_SCAL:
        return strata_blas_scal(blas, vectors->n, vectors->alpha, &vectors->x, stream);
    case STRATA_BLAS_DOT:
        return strata_blas_dot(blas, vectors->n, &vectors->x, &vectors->y, &vectors->result, stream);
    case STRATA_BLAS_NRM2:
        return strata_blas_nrm2(blas, vectors->n, &vectors->x, &vectors->result, stream);
    }
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "there is no routine %d", (int)call->routine);
}

/* Without a list of libraries, cuBLAS is opened for the first request: that takes a tenth of a second, and memory. */
strata_status service_find_blas(strata_service *service, strata_blas **out)
{
    if (!service->libraries && !service->options.libraries) {
        const strata_status status = service_libraries_open(service, "blas");
        if (status != STRATA_SUCCESS)
            return status;
    }
    *out = service->libraries ? strata_libraries_blas(service->libraries) : NULL;
    return *out ? STRATA_SUCCESS
                : strata_fail(STRATA_ERROR_UNSUPPORTED, "the service's options do not list the library \"blas\"");
}

strata_status service_compute(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    strata_blas *blas;
    *waits = false;
    strata_status status = service_find_blas(service, &blas);
    if (status == STRATA_SUCCESS)
        status = compute(blas, request->blas, lane->stream);
    *waits = status == STRATA_SUCCESS;
    return status;
}
