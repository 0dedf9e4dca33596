/* Statuses as codes of CUDA, for programs that know no others. */
#include <strata/status.h>

/* A driver call's own code, if the thread's last failure has it. */
static CUresult code_of_last(strata_status status)
{
    const strata_error *last = strata_last_error();
    return last->status == status && last->driver_code != CUDA_SUCCESS ? last->driver_code : CUDA_ERROR_UNKNOWN;
}

/* Without a default: the compiler names a status that is missing. */
CUresult strata_status_to_cuda(strata_status status)
{
    switch (status) {
    case STRATA_SUCCESS:
        return CUDA_SUCCESS;
    case STRATA_ERROR_OUT_OF_MEMORY:
    case STRATA_ERROR_OUT_OF_HOST_MEMORY: /* the driver's code for both */
    case STRATA_ERROR_OUT_OF_BUDGET:
    case STRATA_ERROR_DEADLOCK: /* a request for memory that would wait for ever */
        return CUDA_ERROR_OUT_OF_MEMORY;
    case STRATA_ERROR_INVALID_VALUE:
    case STRATA_ERROR_USE_AFTER_FREE: /* as cuMemFree answers for an address that it does not know */
    case STRATA_ERROR_DOUBLE_FREE:
    case STRATA_ERROR_FOREIGN_POINTER:
    case STRATA_ERROR_SIZE_MISMATCH:
    case STRATA_ERROR_SYNTAX:
        return CUDA_ERROR_INVALID_VALUE;
    case STRATA_ERROR_WRONG_DEVICE:
        return CUDA_ERROR_INVALID_DEVICE;
    case STRATA_ERROR_STREAM_MISUSE:
    case STRATA_ERROR_STALE:
        return CUDA_ERROR_INVALID_HANDLE;
    case STRATA_ERROR_BLOCK_IN_USE:
    case STRATA_ERROR_STREAMS_EXHAUSTED:
    case STRATA_ERROR_NOT_COMMITTED:
    case STRATA_ERROR_BUSY:
    case STRATA_ERROR_SHARED:
    case STRATA_ERROR_SEALED:
    case STRATA_ERROR_QUEUE_FULL:
        return CUDA_ERROR_ILLEGAL_STATE;
    case STRATA_ERROR_STREAM_CAPTURE:
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    case STRATA_ERROR_NOT_READY:
        return CUDA_ERROR_NOT_READY;
    case STRATA_ERROR_UNSUPPORTED:
        return CUDA_ERROR_NOT_SUPPORTED;
    case STRATA_ERROR_DRIVER_NOT_FOUND:
        return CUDA_ERROR_NO_DEVICE;
    case STRATA_ERROR_SHUT_DOWN:
        return CUDA_ERROR_DEINITIALIZED;
    case STRATA_ERROR_FORKED: /* what the driver answers in a child */
        return CUDA_ERROR_NOT_INITIALIZED;
    case STRATA_ERROR_IO:
        return CUDA_ERROR_OPERATING_SYSTEM;
    case STRATA_ERROR_DEVICE_RESET:
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case STRATA_ERROR_TIMEOUT:
        return CUDA_ERROR_TIMEOUT;
    case STRATA_ERROR_DRIVER:
    case STRATA_ERROR_POISONED:
        return code_of_last(status);
    case STRATA_ERROR_CORRUPTED:
    case STRATA_ERROR_CANCELLED:
    case STRATA_ERROR_LIBRARY:
        break;
    }
    return CUDA_ERROR_UNKNOWN;
}

/* Numbers that the CUDA runtime lacks (driver_types.h of CUDA 13.0). */
int strata_status_to_cudart(strata_status status)
{
    const CUresult code = strata_status_to_cuda(status);
    return code == CUDA_ERROR_CONTEXT_ALREADY_CURRENT || code == CUDA_ERROR_KEY_ROTATION ? CUDA_ERROR_UNKNOWN
                                                                                         : (int)code;
}
