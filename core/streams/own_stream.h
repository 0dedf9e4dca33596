/* Fast path for a use on an unknown stream: while its last event was not looked at, the event is recorded again and
 * then covers all work since. No point in the block changes. */
#ifndef STRATA_CORE_STREAMS_OWN_STREAM_H
#define STRATA_CORE_STREAMS_OWN_STREAM_H

#include "core/streams/stream_map.h"

/* Records the current epoch's event again; false if that is not possible. The epoch must be that of `point`, the
 * block's last one. */
static inline bool strata_timeline_rerecord(const strata_stream_ref *stream, strata_point point)
{
    strata_timeline *timeline = stream->timeline;
    bool recorded = false;
    strata_spin_take(&timeline->lock);
    const strata_event *event = strata_timeline_open_event(timeline);
    if (event && event->epoch == strata_point_epoch(point) && event->clock == timeline->clock && !timeline->notes &&
        !strata_scope_for(stream->handle) &&
        atomic_load_explicit(&timeline->stream_id, memory_order_relaxed) == stream->stream_id)
        recorded = strata_cu.EventRecord(event->handle, stream->handle) == CUDA_SUCCESS;
    strata_spin_release(&timeline->lock);
    return recorded;
}

#endif
