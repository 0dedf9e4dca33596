/* Waits on the host for all work of a stream. */
#include "core/streams/stream_wait.h"

#include "core/base/error.h"
#include "core/streams/stream_map.h"

#include <strata/resource.h>

strata_status strata_stream_wait_instead(strata_device *device, CUstream handle, strata_status why)
{
    if (why != STRATA_ERROR_OUT_OF_HOST_MEMORY && why != STRATA_ERROR_BUSY && why != STRATA_ERROR_DRIVER &&
        why != STRATA_ERROR_OUT_OF_MEMORY)
        return why;
    strata_error_suppress_begin();
    strata_status status = strata_stream_synchronize(device, handle);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS ? STRATA_SUCCESS : why;
}

strata_status strata_stream_wait(strata_device *device, CUstream handle)
{
    if (handle == STRATA_STREAM_GONE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a stream that is gone cannot be waited for");
    strata_use_record record;
    const strata_status status = strata_use_record_begin(&record, device, handle);
    if (status == STRATA_SUCCESS)
        return strata_timeline_synchronize(&record.stream, record.held);
    if (status == STRATA_ERROR_STREAM_CAPTURE)
        return strata_fail(status,
                           "the stream is being captured, and cannot be waited for before the capture has ended");
    const bool nameless = status == STRATA_ERROR_OUT_OF_HOST_MEMORY || status == STRATA_ERROR_BUSY;
    return nameless ? strata_stream_wait_instead(device, handle, status) : status;
}
