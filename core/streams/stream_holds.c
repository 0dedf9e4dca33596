/* Holds on known streams. */
#include "core/streams/stream_holds.h"

/* A timeline is reused: earlier points are of other streams. The lock is held. */
static bool is_of_current_stream(const strata_timeline *timeline, strata_point point)
{
    return timeline->kind == STRATA_TIMELINE_KNOWN && strata_point_epoch(point) >= timeline->first_epoch;
}

bool strata_stream_hold(strata_point point, CUstream *handle)
{
    strata_timeline *timeline = strata_timeline_of(point);
    strata_spin_take(&timeline->lock);
    const bool held = is_of_current_stream(timeline, point);
    timeline->handle_holds += held;
    *handle = held ? timeline->stream : NULL;
    strata_spin_release(&timeline->lock);
    return held;
}

void strata_stream_unhold(strata_point point)
{
    strata_timeline *timeline = strata_timeline_of(point);
    strata_spin_take(&timeline->lock);
    timeline->handle_holds -= is_of_current_stream(timeline, point) && timeline->handle_holds > 0;
    strata_spin_release(&timeline->lock);
}
