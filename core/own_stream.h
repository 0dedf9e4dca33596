/* The short way for the commonest use of all: a block that only ever saw one stream, used there again by the thread that made
 * it. On a known stream that is a few loads. On an unknown one it is the driver calls that cannot be saved, identity and
 * capture in prepare and again in finish and the event, with as little around them as there can be: going the general way
 * through core/stream_map.c and back costs twice as many instructions as the calls themselves leave room for.
 *
 * Whatever is not exactly so answers false and has changed nothing; the general way then asks again. */
#ifndef STRATA_CORE_OWN_STREAM_H
#define STRATA_CORE_OWN_STREAM_H

#include "core/stream_map.h"
#include "core/thread.h"

/* The timeline of an unknown stream that this thread has seen lately, or NULL. */
static inline strata_timeline *strata_own_stream_identify(CUstream handle, uint64_t *id)
{
    const strata_thread *thread = strata_thread_current;
    if (strata_scope_for(handle) || !thread || thread->batch.timeline || !strata_cu.StreamGetId)
        return NULL;
    CUstreamCaptureStatus capture;
    unsigned long long driver_id;
    if (strata_cu.StreamIsCapturing(handle, &capture) != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE ||
        strata_cu.StreamGetId(handle, &driver_id) != CUDA_SUCCESS)
        return NULL;
    *id = driver_id + 1; /* as core/stream_map.c counts them */
    const strata_stream_cache_line *line = &thread->streams[*id % STRATA_STREAM_CACHE_SIZE];
    bool same = line->stream_id == *id &&
                atomic_load_explicit(&line->timeline->stream_id, memory_order_acquire) == *id;
    return same ? line->timeline : NULL;
}

/* Whether the event of the current epoch could be recorded again, so that it covers what was submitted since. The epoch must
 * be that of `point`, the block's last one. */
static inline bool strata_own_stream_record(strata_timeline *timeline, uint64_t id, CUstream handle, strata_point point)
{
    bool recorded = false;
    strata_spin_take(&timeline->lock);
    const strata_event *event = strata_timeline_open_event(timeline);
    if (event && event->epoch == strata_point_epoch(point) && event->clock == timeline->clock && !timeline->notes &&
        atomic_load_explicit(&timeline->stream_id, memory_order_relaxed) == id)
        recorded = strata_cu.EventRecord(event->handle, handle) == CUDA_SUCCESS;
    strata_spin_release(&timeline->lock);
    return recorded;
}

#endif
