/* The waits of streams for points of other streams, also of another device, and what a stream is known to come after.
 *
 * A wait names an event and a stream to the driver, perhaps of two devices: strata_timeline_event_for asks about the
 * event's, and the stream's own is asked here (see timeline.c). */
#include "core/streams/timeline_events.h"

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/streams/events.h"

strata_clock *strata_timeline_clock(const strata_stream_ref *stream, bool held)
{
    if (!held)
        strata_spin_take(&stream->timeline->lock);
    strata_clock *clock = strata_timeline_belongs_to(stream) ? strata_clock_ref(stream->timeline->clock) : NULL;
    if (!held)
        strata_spin_release(&stream->timeline->lock);
    return clock;
}

static bool covers(const strata_stream_ref *stream, strata_point point)
{
    strata_spin_take(&stream->timeline->lock);
    bool covered = strata_timeline_belongs_to(stream) && strata_clock_covers(stream->timeline->clock, point);
    strata_spin_release(&stream->timeline->lock);
    return covered;
}

bool strata_timeline_follows(const strata_stream_ref *stream, const strata_clock *clock, strata_point point)
{
    return strata_point_timeline(point) == stream->timeline->number || strata_point_known_complete(point) ||
           strata_clock_covers(clock, point);
}

/* The stream now comes after the event. No effect if another stream has the timeline. */
static void merge_clock(const strata_stream_ref *stream, strata_point covered, const strata_event *event)
{
    strata_timeline *timeline = stream->timeline;
    strata_spin_take(&timeline->lock);
    strata_clock *merged = strata_timeline_belongs_to(stream)
                               ? strata_clock_merge(timeline->clock, event->clock, covered, strata_point_known_complete)
                               : NULL;
    if (merged) {
        strata_clock_unref(timeline->clock);
        timeline->clock = merged;
    }
    strata_spin_release(&timeline->lock);
}

strata_device *strata_timeline_own_device(const strata_stream_ref *stream)
{
    strata_spin_take(&stream->timeline->lock);
    strata_device *own =
        stream->known && strata_timeline_belongs_to(stream) ? stream->timeline->device : stream->device;
    strata_spin_release(&stream->timeline->lock);
    return own;
}

/* Checks the stream's own device, unless it is `asked`, which was checked already. */
static strata_status check_own_device(const strata_stream_ref *stream, const strata_device *asked)
{
    strata_device *own = strata_timeline_own_device(stream);
    return own == asked ? STRATA_SUCCESS : strata_check_device_now(own);
}

strata_status strata_timeline_wait(const strata_stream_ref *stream, strata_point point)
{
    if (strata_point_timeline(point) == stream->timeline->number || strata_point_known_complete(point))
        return STRATA_SUCCESS;
    strata_thread *thread = strata_thread_current;
    bool in_batch = thread && thread->batch.timeline == stream->timeline;
    if (in_batch && strata_point_timeline(thread->batch.waited) == strata_point_timeline(point) &&
        strata_point_epoch(point) <= strata_point_epoch(thread->batch.waited))
        return STRATA_SUCCESS;
    if (covers(stream, point))
        return STRATA_SUCCESS;
    strata_event *event;
    uint64_t epoch;
    strata_status status = strata_timeline_event_for(point, stream->device, false, &event, &epoch);
    if (!event)
        return status;
    strata_call_scope scope;
    status = check_own_device(stream, event->device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, stream->device, strata_call_scope_for(stream->handle));
    if (status == STRATA_SUCCESS) {
        CUresult result = strata_cu.StreamWaitEvent(stream->handle, event->handle, CU_EVENT_WAIT_DEFAULT);
        strata_call_scope_leave(&scope);
        strata_point covered = strata_point_make(strata_point_timeline(point), epoch);
        if (result == CUDA_SUCCESS)
            merge_clock(stream, covered, event);
        if (result == CUDA_SUCCESS && in_batch)
            thread->batch.waited = covered;
        else if (result != CUDA_SUCCESS)
            status = strata_fail_driver(result, "cuStreamWaitEvent", "making a stream wait for another");
    }
    strata_timeline_drop_event(event);
    return status;
}

strata_status strata_timeline_order(const strata_stream_ref *stream, strata_point point)
{
    if (strata_point_timeline(point) == stream->timeline->number || strata_point_known_complete(point))
        return STRATA_SUCCESS;
    strata_error_suppress_begin();
    const strata_status status = strata_timeline_wait(stream, point);
    strata_error_suppress_end(status != STRATA_SUCCESS && !strata_lacks_memory(status));
    return __builtin_expect(strata_lacks_memory(status), 0) ? strata_point_synchronize_for(stream->device, point)
                                                            : status;
}
