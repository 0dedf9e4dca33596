/* Requests for cuBLAS, as programs make them. */
#include <strata/service_blas.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "service/service.h"

/* ---- operands ---- */

static strata_status check_operand(strata_service *service, const strata_blas_operand *operand)
{
    strata_ref_memory memory;
    if (!operand->ref || operand->block || operand->batch)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_blas: operands are references alone");
    const strata_status status = strata_ref_access(operand->ref, &memory);
    return status == STRATA_SUCCESS ? service->backend->check_ref(service, operand->ref) : status;
}

/* Holds the references of a checked call. */
static strata_status take_call(strata_future *request, const strata_service_blas_call *given)
{
    strata_blas_operand *operands[3];
    strata_service_blas_call *call = strata_host_zalloc(sizeof *call);
    if (!call)
        return strata_fail_host_memory("a request for cuBLAS");
    strata_status status = strata_options_read(call, sizeof *call, given, "strata_service_blas_call");
    if (status == STRATA_SUCCESS && (unsigned)call->routine > STRATA_BLAS_NRM2)
        status =
            strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_blas: there is no routine %d", (int)call->routine);
    call->size = 0; /* as this library knows them */
    if (call->routine <= STRATA_BLAS_TRSM)
        call->call.gemm.size = 0;
    const size_t count = status == STRATA_SUCCESS ? service_blas_operands(call, operands) : 0;
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status = check_operand(request->service, operands[i]);
    if (status != STRATA_SUCCESS) {
        strata_host_free(call);
        return status;
    }
    for (size_t i = 0; i < count; i++)
        strata_ref_clone(operands[i]->ref);
    request->blas = call;
    return STRATA_SUCCESS;
}

/* ---- calls ---- */

strata_status strata_service_blas(strata_service *service, const strata_service_blas_call *call,
                                  const strata_send_options *send, strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = service_request_make(service, SERVICE_BLAS, send, "strata_service_blas", &request);
    if (status != STRATA_SUCCESS)
        return status;
    status =
        call ? take_call(request, call) : strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_blas: call is NULL");
    if (status == STRATA_SUCCESS)
        return service_request_submit(request, out);
    service_request_drop(request);
    return status;
}

strata_status strata_service_sgemm(strata_service *service, const strata_blas_gemm_call *call,
                                   const strata_send_options *send, strata_future **out)
{
    strata_service_blas_call whole = {.routine = STRATA_BLAS_GEMM};
    if (out)
        *out = NULL;
    const strata_status status =
        call ? strata_options_read(&whole.call.gemm, sizeof whole.call.gemm, call, "strata_blas_gemm_call")
             : strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_sgemm: call is NULL");
    whole.call.gemm.size = 0;
    if (status != STRATA_SUCCESS)
        return status;
    if (strata_ref_type(whole.call.gemm.a.ref) != STRATA_ELEMENT_F32 ||
        strata_ref_type(whole.call.gemm.c.ref) != STRATA_ELEMENT_F32)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_sgemm: the matrices are references of f32");
    return strata_service_blas(service, &whole, send, out);
}

strata_status strata_service_find_library(strata_service *service, const char *name, strata_library *out)
{
    if (out)
        *out = (strata_library){0};
    const strata_status status = service_check(service, "strata_service_find_library");
    if (status != STRATA_SUCCESS)
        return status;
    if (!name || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_find_library: name or out is NULL");
    if (service->options.form == STRATA_SERVICE_ISOLATED)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "the libraries of an isolated service are its worker's: its handles mean nothing here");
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&service->lock);
    strata_libraries *libraries = service->libraries;
    const bool ready = service->snapshot.ready;
    const strata_status found = ready && libraries ? strata_libraries_find(libraries, name, out) : STRATA_SUCCESS;
    strata_lock_release(&service->lock);
    strata_error_suppress_end(found != STRATA_SUCCESS);
    return found != STRATA_SUCCESS || libraries || !ready
               ? found
               : strata_fail(STRATA_ERROR_INVALID_VALUE, "the service has opened no library; name them in its options");
}
