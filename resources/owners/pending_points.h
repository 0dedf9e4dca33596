/* The newest pending point of each stream that many frees wait for, some streams at a time: for who waits for all of
 * them, while the lock that guards them is free and they stay where others find them.
 *
 *     strata_pending_points pending = {0};
 *     do {
 *         strata_pending_points_next(&pending);
 *         ... with the lock held, strata_pending_points_add for every point
 *         ... without it, wait for pending.points
 *     } while (strata_pending_points_is_full(&pending));
 */
#ifndef STRATA_RESOURCES_OWNERS_PENDING_POINTS_H
#define STRATA_RESOURCES_OWNERS_PENDING_POINTS_H

#include "core/streams/timeline.h"

enum { STRATA_PENDING_POINTS_STREAMS = 64 };

/* Of one thread. */
typedef struct strata_pending_points {
    uint16_t after;                                     /* the number of a timeline; all up to it had their turn */
    strata_point points[STRATA_PENDING_POINTS_STREAMS]; /* without the write bit, in the order of their timelines */
    size_t count;
} strata_pending_points;

/* Goes on with the streams behind those that are in there. */
static inline void strata_pending_points_next(strata_pending_points *pending)
{
    if (pending->count)
        pending->after = strata_point_timeline(pending->points[pending->count - 1]);
    pending->count = 0;
}

/* Keeps the point if it is pending, of a stream whose turn it is, and newer than what is in there of that stream. */
void strata_pending_points_add(strata_pending_points *pending, strata_point point);

/* Whether there may be streams that have no place in there. */
static inline bool strata_pending_points_is_full(const strata_pending_points *pending)
{
    return pending->count == STRATA_PENDING_POINTS_STREAMS;
}

#endif
