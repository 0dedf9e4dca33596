/* The operands of a request for cuBLAS. */
#include "core/base/host_memory.h"
#include "service/service.h"

size_t service_blas_operands(strata_service_blas_call *call, strata_blas_operand *operands[3])
{
    switch (call->routine) {
    case STRATA_BLAS_GEMM:
        operands[0] = &call->call.gemm.a;
        operands[1] = &call->call.gemm.b;
        operands[2] = &call->call.gemm.c;
        return 3;
    case STRATA_BLAS_GEMV:
        operands[0] = &call->call.gemv.a;
        operands[1] = &call->call.gemv.x;
        operands[2] = &call->call.gemv.y;
        return 3;
    case STRATA_BLAS_GER:
        operands[0] = &call->call.ger.x;
        operands[1] = &call->call.ger.y;
        operands[2] = &call->call.ger.a;
        return 3;
    case STRATA_BLAS_TRSM:
        operands[0] = &call->call.trsm.a;
        operands[1] = &call->call.trsm.b;
        return 2;
    case STRATA_BLAS_AXPY:
    case STRATA_BLAS_DOT:
    case STRATA_BLAS_SCAL:
    case STRATA_BLAS_NRM2:
        break;
    }
    const bool two = call->routine == STRATA_BLAS_AXPY || call->routine == STRATA_BLAS_DOT;
    const bool gives = call->routine == STRATA_BLAS_DOT || call->routine == STRATA_BLAS_NRM2;
    size_t count = 0;
    operands[count++] = &call->call.vectors.x;
    if (two)
        operands[count++] = &call->call.vectors.y;
    if (gives)
        operands[count++] = &call->call.vectors.result;
    return count;
}

void service_blas_drop(strata_service_blas_call *call)
{
    strata_blas_operand *operands[3];
    const size_t count = call ? service_blas_operands(call, operands) : 0;
    for (size_t i = 0; i < count; i++)
        strata_ref_release(operands[i]->ref);
    strata_host_free(call);
}
