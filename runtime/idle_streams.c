/* The process's idle streams, of all devices. */
#include "runtime/idle_streams.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/streams/internal_streams.h"
#include "core/streams/stream_wait.h"

struct strata_idle_stream {
    strata_idle_stream *next;
    strata_device *device;
    CUstream handle;
};

static strata_lock lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_IDLE_STREAMS);
static strata_idle_stream *idle; /* guarded by lock */

/* The device's stream that was given back last, or NULL. Drops the streams of lost devices, which their reset has
 * ended. */
static strata_idle_stream *take(const strata_device *device)
{
    strata_idle_stream *found = NULL;
    strata_lock_take(&lock);
    for (strata_idle_stream **link = &idle, *one; !found && (one = *link);) {
        const bool lost = strata_device_is_lost(one->device);
        if (!lost && one->device != device) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        if (lost)
            strata_host_free(one);
        else
            found = one;
    }
    strata_lock_release(&lock);
    return found;
}

strata_status strata_idle_stream_take(strata_device *device, strata_idle_stream **out)
{
    *out = NULL;
    strata_status status = strata_check_device_now(device); /* the handles are from before */
    if (status != STRATA_SUCCESS || (*out = take(device)))
        return status;
    strata_idle_stream *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return strata_fail_host_memory("an internal stream");
    status = strata_internal_stream_create(device, false, "a stream for memory without one", &one->handle);
    if (status != STRATA_SUCCESS) {
        strata_host_free(one);
        return status;
    }
    one->device = device;
    *out = one;
    return STRATA_SUCCESS;
}

strata_status strata_idle_stream_wait(const strata_idle_stream *one)
{
    return strata_stream_wait(one->device, one->handle);
}

void strata_idle_stream_give(strata_idle_stream *one)
{
    strata_lock_take(&lock);
    one->next = idle;
    idle = one;
    strata_lock_release(&lock);
}

CUstream strata_idle_stream_handle(const strata_idle_stream *one)
{
    return one->handle;
}
