/* What timeline.c has for the waits of streams (timeline_order.c): events that cover points. */
#ifndef STRATA_CORE_STREAMS_TIMELINE_EVENTS_H
#define STRATA_CORE_STREAMS_TIMELINE_EVENTS_H

#include "core/streams/timeline.h"

/* An event that covers `point`, with a reference; recorded if needed and possible. *covered: up to where. *out is NULL
 * if the point is complete. `may_wait`: for want of an event the thread waits on the host. To another device, `asking`
 * (NULL: none), work that a reset has ended is complete. */
strata_status strata_timeline_event_for(strata_point point, const strata_device *asking, bool may_wait,
                                        strata_event **out, uint64_t *covered);

/* Gives up a reference. NULL is ignored. */
void strata_timeline_drop_event(strata_event *event);

/* Whether the timeline still is the stream's. The timeline's lock is held. */
static inline bool strata_timeline_belongs_to(const strata_stream_ref *stream)
{
    const strata_timeline *timeline = stream->timeline;
    return stream->known ? timeline->kind == STRATA_TIMELINE_KNOWN
                         : atomic_load_explicit(&timeline->stream_id, memory_order_relaxed) == stream->stream_id;
}

#endif
