/* The newest pending point of each stream among many frees, some streams at a time: for a thread that waits for all
 * without holding the lock that guards the frees.
 *
 *     strata_pending_points pending = {0};
 *     do {
 *         strata_pending_points_next(&pending);
 *         ... with the lock, strata_pending_points_add for every point
 *         ... without it, wait for pending.points
 *     } while (strata_pending_points_is_full(&pending)); */
#ifndef STRATA_RESOURCES_OWNERS_PENDING_POINTS_H
#define STRATA_RESOURCES_OWNERS_PENDING_POINTS_H

#include "core/streams/device.h"
#include "core/streams/timeline.h"

enum { STRATA_PENDING_POINTS_STREAMS = 64 };

/* Local to one thread. */
typedef struct strata_pending_points {
    uint16_t after;                                     /* timeline number; streams up to it are done */
    strata_point points[STRATA_PENDING_POINTS_STREAMS]; /* without the write bit, by timeline */
    size_t count;
} strata_pending_points;

static inline void strata_pending_points_next(strata_pending_points *pending)
{
    if (pending->count)
        pending->after = strata_point_timeline(pending->points[pending->count - 1]);
    pending->count = 0;
}

/* Keeps a pending point of a stream after `after`, if newer than that stream's kept one. */
void strata_pending_points_add(strata_pending_points *pending, strata_point point);

/* strata_pending_points_add as a visitor of points. Always STRATA_SUCCESS. */
strata_status strata_pending_points_visit(strata_point point, void *pending);

/* Whether streams may be left over. */
static inline bool strata_pending_points_is_full(const strata_pending_points *pending)
{
    return pending->count == STRATA_PENDING_POINTS_STREAMS;
}

/* Asks the driver how far the streams are, but for the timeline of number `except` (0: none). Errors are ignored: what
 * is not known to be complete stays pending. Returns how many streams it asked. */
size_t strata_pending_points_poll(const strata_pending_points *pending, strata_device *device, uint16_t except);

#endif
