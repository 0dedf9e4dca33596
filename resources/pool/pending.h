/* What a piece of free memory waits for: everything that may still touch it. While a block lives, its entry remembers
 * who used it; when it is freed, the same words of the entry remember what the memory's next user comes after, as at
 * most one point for each stream. They go with the memory: to both parts when it is split, together when it is joined.
 *
 * They belong to whoever has the piece: the pool's lock while it is free, the thread that took it otherwise. */
#ifndef STRATA_RESOURCES_POOL_PENDING_H
#define STRATA_RESOURCES_POOL_PENDING_H

#include "core/blocks/blocks.h"
#include "core/streams/timeline.h"

/* In place of a timeline's number: no point, and points of several. */
enum { POOL_TIMELINE_NONE = 0, POOL_TIMELINE_MULTI = UINT16_MAX };

_Static_assert((int)POOL_TIMELINE_MULTI > (int)STRATA_TIMELINE_LAST, "no stream's memory is taken for that of several");

/* Whose points these are. */
uint16_t pool_points_timeline(const strata_entry *entry);

/* Forgets what is known to be complete. */
void pool_points_forget_complete(strata_entry *entry);

/* Forgets each point for which forget(point, data) says so. */
void pool_points_forget(strata_entry *entry, bool (*forget)(strata_point point, void *data), void *data);

/* Makes one of several points of the same timeline. */
void pool_points_join(strata_entry *entry);

/* Forgets all. */
void pool_points_clear(strata_entry *entry);

/* An entry's points while something else stands in their place, which has none in `more`. */
typedef struct pool_points {
    strata_point first, second;
    strata_more_points *more;
} pool_points;

pool_points pool_points_set_aside(strata_entry *entry);
void pool_points_put_back(strata_entry *entry, pool_points points);
void pool_points_drop(pool_points points);

/* Adds a point; false without host memory, and nothing changed. */
bool pool_points_add(strata_entry *entry, strata_point point);

/* Adds those of `from`, which keeps them. False without host memory: then some were added, which is never wrong. */
bool pool_points_add_all(strata_entry *entry, const strata_entry *from);

#endif
