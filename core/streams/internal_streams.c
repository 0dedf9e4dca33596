/* Streams that Strata creates. */
#include "core/streams/internal_streams.h"

#include "core/base/error.h"
#include "core/streams/stream_map.h"

strata_status strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out)
{
    *out = NULL;
    strata_call_scope scope;
    CUstream stream;
    strata_status status = strata_check_device_now(device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        status = strata_fail_driver(result, "cuStreamCreate", "creating %s", what);
    else if ((status = strata_stream_register(device, stream, early)) != STRATA_SUCCESS)
        strata_cu.StreamDestroy(stream);
    else
        *out = stream;
    strata_call_scope_leave(&scope);
    return status;
}

strata_status strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone)
{
    *gone = !strata_device_is_usable_now(device); /* or the handle is of before a reset */
    if (*gone)
        return STRATA_SUCCESS;
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    strata_stream_ref left;
    status = strata_stream_unregister(device, stream, &left);
    if (status == STRATA_SUCCESS) {
        *gone = true;
        strata_stream_await_frees(&left);
        /* Not tried again if it fails: the error may be that of earlier work, and the stream be gone. */
        CUresult result = strata_cu.StreamDestroy(stream);
        if (result != CUDA_SUCCESS)
            status = strata_fail_driver(result, "cuStreamDestroy", "destroying an internal stream");
    }
    strata_call_scope_leave(&scope);
    return status;
}
