/* Of many points the newest of each stream. */
#include "resources/owners/pending_points.h"

#include <string.h>

void strata_pending_points_add(strata_pending_points *pending, strata_point point)
{
    strata_point *points = pending->points;
    uint16_t timeline = strata_point_timeline(point);
    point &= ~STRATA_POINT_WRITE;
    if (timeline <= pending->after || strata_point_known_complete(point))
        return;
    size_t at = pending->count;
    while (at > 0 && strata_point_timeline(points[at - 1]) >= timeline)
        at--;
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
