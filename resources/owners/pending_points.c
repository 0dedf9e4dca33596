/* The newest of many points, for each stream. */
#include "resources/owners/pending_points.h"

#include "core/base/error.h"
#include "core/streams/call_scope.h"

#include <string.h>

/* Index of the first point of that timeline or a later one. */
static size_t index_of(const strata_pending_points *pending, uint16_t timeline)
{
    size_t at = 0, end = pending->count;
    while (at < end) {
        const size_t middle = (at + end) / 2;
        if (strata_point_timeline(pending->points[middle]) < timeline)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

void strata_pending_points_add(strata_pending_points *pending, strata_point point)
{
    strata_point *points = pending->points;
    uint16_t timeline = strata_point_timeline(point);
    point &= ~STRATA_POINT_WRITE;
    if (timeline <= pending->after || strata_point_known_complete(point))
        return;
    const size_t at = index_of(pending, timeline);
    if (at < pending->count && strata_point_timeline(points[at]) == timeline) {
        points[at] = points[at] < point ? point : points[at];
        return;
    }
    if (at == STRATA_PENDING_POINTS_STREAMS)
        return;
    size_t moved = (strata_pending_points_is_full(pending) ? STRATA_PENDING_POINTS_STREAMS - 1 : pending->count++) - at;
    memmove(&points[at + 1], &points[at], moved * sizeof *points);
    points[at] = point;
}

strata_status strata_pending_points_visit(strata_point point, void *pending)
{
    strata_pending_points_add(pending, point);
    return STRATA_SUCCESS;
}

/* In a relaxed scope: a query would else end another thread's capture. */
size_t strata_pending_points_poll(const strata_pending_points *pending, strata_device *device, uint16_t except)
{
    strata_call_scope scope;
    size_t asked = 0;
    const bool others = pending->count > 1 || (pending->count && strata_point_timeline(pending->points[0]) != except);
    strata_error_suppress_begin();
    if (others && strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_RELAXED) == STRATA_SUCCESS) {
        for (size_t i = 0; i < pending->count; i++) {
            const strata_point point = pending->points[i];
            if (strata_point_timeline(point) == except || strata_point_known_complete(point))
                continue;
            strata_timeline_poll_up_to_now(strata_timeline_of(point));
            asked++;
        }
        strata_call_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
    return asked;
}
