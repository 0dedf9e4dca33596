/* Batches. */
#include "core/streams/batches.h"

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/streams/stream_map.h"
#include "core/streams/stream_wait.h"
#include "core/streams/use_records.h"

strata_status strata_batch_begin(strata_device *device, CUstream handle, bool recording)
{
    strata_thread *thread = strata_thread_self();
    if (!thread)
        return strata_fail_host_memory("a thread's state");
    strata_stream_ref stream;
    bool held = false;
    strata_status status = recording ? strata_stream_resolve_and_lock(device, handle, &stream, &held)
                                     : strata_stream_resolve(device, handle, &stream);
    if (status != STRATA_SUCCESS)
        return status;
    thread->batch = (strata_stream_batch){
        .handle = handle,
        .timeline = stream.timeline,
        .device = device,
        .stream_id = stream.stream_id,
        .known = stream.known,
        .recording = recording,
    };
    if (recording)
        thread->batch.clock = strata_timeline_clock(&stream, held);
    if (held) {
        thread->batch.incarnation = atomic_load_explicit(&stream.timeline->incarnation, memory_order_relaxed);
        strata_timeline_close(stream.timeline);
        stream.timeline->recording_batches++;
        strata_spin_release(&stream.timeline->lock);
    }
    return STRATA_SUCCESS;
}

strata_status strata_batch_begin_or_wait(strata_device *device, CUstream handle, bool *begun)
{
    strata_error_suppress_begin();
    strata_status status = strata_batch_begin(device, handle, true);
    *begun = status == STRATA_SUCCESS;
    if (!*begun)
        status = strata_stream_wait_instead(device, handle, status);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* Records the event of an unknown stream. The lock is held. */
static strata_status record_held(const strata_stream_batch *batch)
{
    strata_timeline *timeline = batch->timeline;
    timeline->recording_batches--;
    if (atomic_load_explicit(&timeline->incarnation, memory_order_relaxed) != batch->incarnation)
        return strata_check_device(batch->device); /* a reset has ended the stream, whose handle may be another's */
    const strata_status status = strata_timeline_record_now(timeline, batch->handle);
    if (timeline->kind == STRATA_TIMELINE_KNOWN) /* registered meanwhile: no other call records this event */
        strata_timeline_close(timeline);
    return status;
}

strata_status strata_batch_end(void)
{
    strata_thread *thread = strata_thread_current;
    strata_stream_batch batch = thread->batch;
    thread->batch = (strata_stream_batch){0};
    if (!batch.recording)
        return STRATA_SUCCESS;
    strata_clock_unref(batch.clock);
    if (batch.known)
        return strata_timeline_close_early(batch.timeline, batch.handle);
    strata_error_suppress_begin();
    strata_spin_take(&batch.timeline->lock);
    const strata_status status = record_held(&batch);
    strata_spin_release(&batch.timeline->lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}
