/* Waits for streams. */
#include "core/streams/stream_wait.h"

#include "core/base/error.h"
#include "core/streams/use_records.h"

#include <strata/resource.h>

bool strata_stream_wait_can_help(strata_status why)
{
    return why == STRATA_ERROR_OUT_OF_HOST_MEMORY || why == STRATA_ERROR_BUSY || why == STRATA_ERROR_DRIVER ||
           why == STRATA_ERROR_OUT_OF_MEMORY;
}

static strata_status wait_instead(const strata_stream_ref *stream, bool noted, strata_status why)
{
    if (!strata_stream_wait_can_help(why))
        return why;
    strata_error_aside aside; /* `why` stays the error of this thread, suppressed or not */
    strata_error_set_aside(&aside);
    strata_error_suppress_begin();
    strata_status status = noted ? strata_timeline_synchronize_unmarked(stream)
                                 : strata_stream_synchronize(stream->device, stream->handle);
    strata_error_suppress_end(false);
    strata_error_take_back(&aside);
    return status == STRATA_SUCCESS ? STRATA_SUCCESS : why;
}

strata_status strata_stream_wait_instead(strata_device *device, CUstream handle, strata_status why)
{
    return wait_instead(&(strata_stream_ref){.device = device, .handle = handle}, false, why);
}

strata_status strata_stream_wait_unmarked(const strata_stream_ref *stream, strata_status why)
{
    return wait_instead(stream, true, why);
}

/* The stream has no timeline: it is waited for, and there is nothing to note. */
static strata_status wait_without_timeline(strata_device *device, CUstream handle, const strata_error *why)
{
    if (why->status == STRATA_ERROR_OUT_OF_HOST_MEMORY || why->status == STRATA_ERROR_BUSY)
        return strata_stream_synchronize(device, handle);
    if (why->status != STRATA_ERROR_STREAM_CAPTURE)
        return strata_error_raise_again(why);
    strata_error *error = strata_error_begin(why->status);
    error->driver_code = why->driver_code;
    error->driver_name = why->driver_name;
    error->driver_call = why->driver_call;
    return strata_error_raise(error, "cannot wait for a stream while it is being captured");
}

strata_status strata_stream_wait(strata_device *device, CUstream handle)
{
    if (handle == STRATA_STREAM_GONE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "cannot wait for a stream that is gone");
    strata_use_record record;
    strata_error_suppress_begin();
    const strata_status status = strata_use_record_begin(&record, device, handle);
    if (status == STRATA_SUCCESS) {
        strata_error_suppress_end(false);
        return strata_timeline_synchronize(&record.stream, record.held);
    }
    const strata_error why = *strata_error_suppressed();
    strata_error_suppress_end(false);
    return wait_without_timeline(device, handle, &why);
}
