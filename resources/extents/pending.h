/* Points that free memory waits for, at most one a stream. They stand in an entry's words for a live block's uses, and
 * stay with the memory: both parts of a split have them, a join merges them.
 *
 * Guarded by the pool's lock while the extent is free, else its owner's. */
#ifndef STRATA_RESOURCES_EXTENTS_PENDING_H
#define STRATA_RESOURCES_EXTENTS_PENDING_H

#include "core/blocks/blocks.h"
#include "core/streams/timeline.h"

/* Timeline numbers of memory without points, and with points of several timelines. */
enum { POOL_TIMELINE_NONE = 0, POOL_TIMELINE_MULTI = UINT16_MAX };

_Static_assert((int)POOL_TIMELINE_MULTI > (int)STRATA_TIMELINE_LAST, "no stream's memory is taken for that of several");

uint16_t pool_points_timeline(const strata_entry *entry);

void pool_points_forget_complete(strata_entry *entry);

/* Whether it is known that no work can touch the memory. */
bool pool_is_complete(const strata_entry *entry);

/* A point that is not known to be complete; 0: none. Forgets those that are. */
strata_point pool_points_pending(strata_entry *entry);

/* Drops points for which forget(point, data). */
void pool_points_forget(strata_entry *entry, bool (*forget)(strata_point point, void *data), void *data);

/* Merges points of one timeline. */
void pool_points_join(strata_entry *entry);

void pool_points_clear(strata_entry *entry);

/* Points that are set aside while an entry's words hold a block's uses. */
typedef struct pool_points {
    strata_point first, second;
    strata_more_points *more;
} pool_points;

pool_points pool_points_set_aside(strata_entry *entry);
void pool_points_put_back(strata_entry *entry, pool_points points);
void pool_points_drop(pool_points points);

/* Adds a point, or replaces an earlier one of its timeline. False without host memory: nothing changed. */
bool pool_points_add(strata_entry *entry, strata_point point);

/* Adds another entry's points. False without host memory; points added so far are harmless. */
bool pool_points_add_all(strata_entry *entry, const strata_entry *from);

#endif
