/* Points that free memory waits for: everything that may still touch it. While a block lives, its entry remembers its
 * uses; after the free, the same words remember what the memory's next user must wait for, at most one point a stream.
 * They stay with the memory: both parts of a split have them, a join merges them.
 *
 * They belong to the owner of the extent: guarded by the pool's lock while it is free, else private to the thread that
 * took it. */
#ifndef STRATA_RESOURCES_POOL_PENDING_H
#define STRATA_RESOURCES_POOL_PENDING_H

#include "core/blocks/blocks.h"
#include "core/streams/timeline.h"

/* In place of a timeline's number: no points, and points of several timelines. */
enum { POOL_TIMELINE_NONE = 0, POOL_TIMELINE_MULTI = UINT16_MAX };

_Static_assert((int)POOL_TIMELINE_MULTI > (int)STRATA_TIMELINE_LAST, "no stream's memory is taken for that of several");

/* The timeline of the points. */
uint16_t pool_points_timeline(const strata_entry *entry);

/* Drops points that are known to be complete. */
void pool_points_forget_complete(strata_entry *entry);

/* Whether no work can touch an extent, by what is known. The extent is the caller's, or free with the lock held. */
bool pool_is_complete(const strata_entry *entry);

/* Drops each point for which forget(point, data) is true. */
void pool_points_forget(strata_entry *entry, bool (*forget)(strata_point point, void *data), void *data);

/* Merges points of the same timeline. */
void pool_points_join(strata_entry *entry);

/* Drops all points. */
void pool_points_clear(strata_entry *entry);

/* Points set aside while an entry's words hold something else without `more`. */
typedef struct pool_points {
    strata_point first, second;
    strata_more_points *more;
} pool_points;

pool_points pool_points_set_aside(strata_entry *entry);
void pool_points_put_back(strata_entry *entry, pool_points points);
void pool_points_drop(pool_points points);

/* Adds a point; false without host memory, leaving the points unchanged. */
bool pool_points_add(strata_entry *entry, strata_point point);

/* Adds the points of `from`, which keeps them. False without host memory; added points are harmless. */
bool pool_points_add_all(strata_entry *entry, const strata_entry *from);

#endif
