/* Use records. */
#include "core/streams/use_records.h"

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/streams/stream_map.h"

/* False if another stream has the timeline now. */
static bool lock_unknown(const strata_stream_ref *stream)
{
    strata_spin_take(&stream->timeline->lock);
    if (atomic_load_explicit(&stream->timeline->stream_id, memory_order_relaxed) == stream->stream_id)
        return true;
    strata_spin_release(&stream->timeline->lock);
    return false;
}

/* After strata_stream_identify; identifies an unknown stream again if it became known or lost the timeline. */
static strata_status lock_or_resolve(strata_stream_ref *stream, bool *held)
{
    strata_status status = STRATA_SUCCESS;
    *held = false;
    while (status == STRATA_SUCCESS && !stream->known && !(*held = lock_unknown(stream)))
        status = strata_stream_resolve(stream->device, stream->handle, stream);
    return status;
}

static strata_status identify_and_lock(strata_device *device, CUstream handle, strata_stream_ref *stream, bool *held)
{
    strata_status status = strata_stream_identify(device, handle, stream);
    *held = false;
    return status == STRATA_SUCCESS ? lock_or_resolve(stream, held) : status;
}

strata_status strata_stream_resolve_and_lock(strata_device *device, CUstream handle, strata_stream_ref *stream,
                                             bool *held)
{
    *held = false;
    strata_timeline *timeline = strata_known_timeline(device, handle);
    *stream = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return timeline ? STRATA_SUCCESS : identify_and_lock(device, handle, stream, held);
}

/* Whether the batch's end will record the event. */
static bool in_recording_batch(const strata_thread *thread, CUstream handle)
{
    return thread && thread->batch.recording && thread->batch.handle == handle;
}

strata_status strata_use_record_begin_unknown(strata_use_record *record, strata_device *device, CUstream handle)
{
    record->held = false;
    if (in_recording_batch(strata_thread_current, handle))
        return strata_stream_identify(device, handle, &record->stream);
    return identify_and_lock(device, handle, &record->stream, &record->held);
}

strata_status strata_use_record_begin_on(strata_use_record *record, const strata_stream_ref *stream)
{
    record->stream = *stream;
    record->held = false;
    if (stream->known || in_recording_batch(strata_thread_current, stream->handle))
        return STRATA_SUCCESS;
    return lock_or_resolve(&record->stream, &record->held);
}

strata_status strata_timeline_close_early(strata_timeline *timeline, CUstream handle)
{
    if (!strata_timeline_is_early(timeline))
        return STRATA_SUCCESS;
    strata_status status = STRATA_SUCCESS;
    strata_error_suppress_begin();
    strata_spin_take(&timeline->lock);
    if (timeline->kind == STRATA_TIMELINE_KNOWN && timeline->stream == handle &&
        (status = strata_check_device_now(timeline->device)) == STRATA_SUCCESS)
        status = strata_timeline_record(timeline, handle);
    strata_spin_release(&timeline->lock);
    const bool later = strata_lacks_memory(status);
    strata_error_suppress_end(status != STRATA_SUCCESS && !later);
    return later ? STRATA_SUCCESS : status;
}

strata_status strata_use_record_end_slow(strata_use_record *record)
{
    const strata_stream_ref *stream = &record->stream;
    if (stream->known) {
        const strata_thread *thread = strata_thread_current;
        bool in_batch = thread && thread->batch.timeline == stream->timeline;
        return in_batch ? STRATA_SUCCESS : strata_timeline_close_early(stream->timeline, stream->handle);
    }
    if (!record->held)
        return STRATA_SUCCESS;
    strata_error_suppress_begin();
    strata_status status = strata_timeline_record_now(stream->timeline, stream->handle);
    strata_spin_release(&stream->timeline->lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

void strata_use_record_cancel(strata_use_record *record)
{
    if (record->held)
        strata_spin_release(&record->stream.timeline->lock);
}

strata_status strata_stream_point(const strata_stream_ref *stream, strata_point *point)
{
    strata_use_record record;
    const strata_status status = strata_use_record_begin_on(&record, stream);
    if (status != STRATA_SUCCESS)
        return status;
    *point = strata_timeline_now(record.stream.timeline);
    return strata_use_record_end(&record);
}

strata_clock *strata_use_record_clock(const strata_use_record *record)
{
    const strata_thread *thread = strata_thread_current;
    if (in_recording_batch(thread, record->stream.handle))
        return thread->batch.clock;
    return strata_timeline_clock(&record->stream, record->held);
}

void strata_use_record_clock_done(const strata_use_record *record, strata_clock *clock)
{
    if (!in_recording_batch(strata_thread_current, record->stream.handle))
        strata_clock_unref(clock);
}

bool strata_use_record_follows(const strata_use_record *record, const strata_clock *clock, strata_point point)
{
    return strata_timeline_follows(&record->stream, clock, point);
}
