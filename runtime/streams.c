/* The runtime's streams: a pool of non-blocking ones, and registered ones of the user. */
#include "runtime/runtime.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/streams/internal_streams.h"
#include "core/streams/stream_map.h"
#include "runtime/captures.h"

#include <string.h>

/* The log callback is the program's: errors are suppressed while the lock is held. */
static void lock_streams(strata_runtime *runtime)
{
    strata_error_suppress_begin();
    strata_lock_take(&runtime->streams_lock);
}

/* Releases the lock, and then raises the error of `status`. */
static void unlock_streams(strata_runtime *runtime, strata_status status)
{
    strata_lock_release(&runtime->streams_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
}

/* The stream's slot, or NULL. The lock is held. */
static strata_stream_slot *find_slot(strata_runtime *runtime, CUstream stream, bool pooled)
{
    for (size_t i = 0; i < runtime->stream_count; i++)
        if (runtime->streams[i].stream == stream && runtime->streams[i].pooled == pooled)
            return &runtime->streams[i];
    return NULL;
}

/* Makes room for one more slot; false without host memory. The lock is held. */
static bool reserve_slot(strata_runtime *runtime)
{
    if (runtime->stream_count < runtime->stream_room)
        return true;
    size_t room = runtime->stream_room ? 2 * runtime->stream_room : 16;
    strata_stream_slot *streams = strata_host_zalloc(room * sizeof *streams);
    if (!streams)
        return false;
    if (runtime->stream_count)
        memcpy(streams, runtime->streams, runtime->stream_count * sizeof *streams);
    strata_host_free(runtime->streams);
    runtime->streams = streams;
    runtime->stream_room = room;
    return true;
}

static void remove_slot(strata_runtime *runtime, strata_stream_slot *slot)
{
    *slot = runtime->streams[--runtime->stream_count];
}

strata_status strata_runtime_register_stream(strata_runtime *runtime, CUstream stream)
{
    strata_status status = strata_check_runtime(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    lock_streams(runtime);
    if (!reserve_slot(runtime))
        status = strata_fail_host_memory("a registered stream");
    if (status == STRATA_SUCCESS)
        status = strata_stream_register(runtime->device, stream, runtime->early_events);
    if (status == STRATA_SUCCESS)
        runtime->streams[runtime->stream_count++] = (strata_stream_slot){.stream = stream, .taken = true};
    unlock_streams(runtime, status);
    return status;
}

strata_status strata_runtime_unregister_stream(strata_runtime *runtime, CUstream stream)
{
    strata_status status = strata_check_runtime_now(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_captures_leave_stream(runtime, stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_stream_ref left;
    lock_streams(runtime);
    strata_stream_slot *slot = find_slot(runtime, stream, false);
    if (!slot)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "the stream is not registered with this runtime");
    else if ((status = strata_stream_unregister(runtime->device, stream, &left)) == STRATA_SUCCESS)
        remove_slot(runtime, slot);
    unlock_streams(runtime, status);
    if (status == STRATA_SUCCESS)
        strata_stream_await_frees(&left);
    return status;
}

strata_status strata_runtime_stream_synchronize(strata_runtime *runtime, CUstream stream)
{
    const strata_status status = strata_check_runtime(runtime);
    return status == STRATA_SUCCESS ? runtime->top->ops->synchronize(runtime->top, stream) : status;
}

/* ---- the pool ---- */

static strata_status take_stream(strata_runtime *runtime, CUstream *out)
{
    size_t pooled = 0;
    for (size_t i = 0; i < runtime->stream_count; i++) {
        strata_stream_slot *slot = &runtime->streams[i];
        pooled += slot->pooled;
        if (!slot->pooled || slot->taken)
            continue;
        slot->taken = true;
        *out = slot->stream;
        return STRATA_SUCCESS;
    }
    if (pooled >= runtime->stream_capacity)
        return strata_fail(
            STRATA_ERROR_STREAMS_EXHAUSTED,
            "all %u streams of the pool are in use; release one, or raise stream_capacity of the runtime",
            runtime->stream_capacity);
    if (!reserve_slot(runtime))
        return strata_fail_host_memory("a stream of the pool");
    strata_status status =
        strata_internal_stream_create(runtime->device, runtime->early_events, "a stream of the pool", out);
    if (status == STRATA_SUCCESS)
        runtime->streams[runtime->stream_count++] = (strata_stream_slot){.stream = *out, .pooled = true, .taken = true};
    return status;
}

strata_status strata_runtime_stream_acquire(strata_runtime *runtime, CUstream *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_stream_acquire: out is NULL");
    *out = NULL;
    strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    lock_streams(runtime);
    status = take_stream(runtime, out);
    unlock_streams(runtime, status);
    if (status != STRATA_SUCCESS)
        *out = NULL;
    return status;
}

strata_status strata_runtime_stream_release(strata_runtime *runtime, CUstream stream)
{
    strata_status status = strata_check_runtime(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_captures_leave_stream(runtime, stream);
    if (status != STRATA_SUCCESS)
        return status;
    lock_streams(runtime);
    strata_stream_slot *slot = find_slot(runtime, stream, true);
    if (!slot || !slot->taken)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "the stream was not acquired from this runtime's pool");
    else
        slot->taken = false;
    unlock_streams(runtime, status);
    return status;
}

strata_status strata_check_streams_released(strata_runtime *runtime)
{
    strata_status status = STRATA_SUCCESS;
    lock_streams(runtime);
    for (size_t i = 0; i < runtime->stream_count && status == STRATA_SUCCESS; i++)
        if (runtime->streams[i].pooled && runtime->streams[i].taken)
            status = strata_fail(STRATA_ERROR_BUSY, "a stream of the runtime's pool is still in use; release it first");
    unlock_streams(runtime, status);
    return status;
}

/* Destroys or unregisters the slot's stream. *gone: the slot can be dropped; no other try is possible. */
static strata_status end_slot(strata_runtime *runtime, const strata_stream_slot *slot, bool *gone)
{
    *gone = true;
    if (!strata_device_is_usable(runtime->device))
        return STRATA_SUCCESS;
    if (slot->pooled)
        return strata_internal_stream_destroy(runtime->device, slot->stream, gone);
    strata_stream_ref left;
    strata_status status = strata_stream_unregister(runtime->device, slot->stream, &left);
    *gone = status == STRATA_SUCCESS;
    if (*gone)
        strata_stream_await_frees(&left);
    return status;
}

strata_status strata_streams_destroy(strata_runtime *runtime)
{
    strata_status status = STRATA_SUCCESS;
    lock_streams(runtime);
    while (runtime->stream_count && status == STRATA_SUCCESS) {
        bool gone;
        status = end_slot(runtime, &runtime->streams[runtime->stream_count - 1], &gone);
        runtime->stream_count -= gone;
    }
    if (status == STRATA_SUCCESS) {
        strata_host_free(runtime->streams);
        runtime->streams = NULL;
        runtime->stream_room = 0;
    }
    unlock_streams(runtime, status);
    return status;
}
