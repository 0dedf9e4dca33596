/* Points of free extents. */
#include "resources/extents/pending.h"

#include "core/base/host_memory.h"

#include <string.h>

static inline strata_point first_of(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->last_write, memory_order_relaxed);
}

static inline strata_point second_of(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->last_read, memory_order_relaxed);
}

static inline strata_more_points *more_of(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->more, memory_order_relaxed);
}

static inline void set_first(strata_entry *entry, strata_point point)
{
    atomic_store_explicit(&entry->last_write, point, memory_order_relaxed);
}

static inline void set_second(strata_entry *entry, strata_point point)
{
    atomic_store_explicit(&entry->last_read, point, memory_order_relaxed);
}

uint16_t pool_points_timeline(const strata_entry *entry)
{
    const strata_point first = first_of(entry), second = second_of(entry);
    const strata_more_points *more = more_of(entry);
    if (more && more->count)
        return POOL_TIMELINE_MULTI;
    if (!first || !second)
        return strata_point_timeline(first | second);
    return strata_point_timeline(first) == strata_point_timeline(second) ? strata_point_timeline(first)
                                                                         : POOL_TIMELINE_MULTI;
}

void pool_points_forget(strata_entry *entry, bool (*forget)(strata_point point, void *data), void *data)
{
    strata_more_points *more = more_of(entry);
    strata_point first = first_of(entry), second = second_of(entry);
    uint32_t kept = 0;
    for (uint32_t i = 0; more && i < more->count; i++)
        if (!forget(more->points[i], data))
            more->points[kept++] = more->points[i];
    if (first && forget(first, data))
        first = kept ? more->points[--kept] : 0;
    if (second && forget(second, data))
        second = kept ? more->points[--kept] : 0;
    if (more)
        more->count = kept;
    set_first(entry, first ? first : second);
    set_second(entry, first ? second : 0);
}

static bool is_complete(strata_point point, void *data)
{
    (void)data;
    return strata_point_known_complete(point);
}

void pool_points_forget_complete(strata_entry *entry)
{
    pool_points_forget(entry, is_complete, NULL);
}

strata_point pool_points_pending(strata_entry *entry)
{
    pool_points_forget_complete(entry);
    return first_of(entry);
}

void pool_points_clear(strata_entry *entry)
{
    set_first(entry, 0);
    set_second(entry, 0);
    strata_more_points *more = more_of(entry);
    if (__builtin_expect(more != NULL, 0)) {
        atomic_store_explicit(&entry->more, NULL, memory_order_relaxed);
        strata_host_free(more);
    }
}

pool_points pool_points_set_aside(strata_entry *entry)
{
    const pool_points points = {first_of(entry), second_of(entry), more_of(entry)};
    set_first(entry, 0);
    set_second(entry, 0);
    if (__builtin_expect(points.more != NULL, 0))
        atomic_store_explicit(&entry->more, NULL, memory_order_relaxed);
    return points;
}

void pool_points_put_back(strata_entry *entry, pool_points points)
{
    set_first(entry, points.first);
    set_second(entry, points.second);
    atomic_store_explicit(&entry->more, points.more, memory_order_relaxed);
}

void pool_points_drop(pool_points points)
{
    if (__builtin_expect(points.more != NULL, 0))
        strata_host_free(points.more);
}

static inline bool covers(strata_point have, strata_point point)
{
    return have && strata_point_timeline(have) == strata_point_timeline(point);
}

static inline strata_point later(strata_point a, strata_point b)
{
    return strata_point_epoch(a) < strata_point_epoch(b) ? b : a;
}

static bool append(strata_entry *entry, strata_point point)
{
    strata_more_points *more = more_of(entry);
    for (uint32_t i = 0; more && i < more->count; i++) {
        if (!covers(more->points[i], point))
            continue;
        more->points[i] = later(more->points[i], point);
        return true;
    }
    if (!more || more->count == more->capacity) {
        const uint32_t capacity = more ? 2 * more->capacity : 6;
        strata_more_points *larger = strata_host_zalloc(sizeof *larger + capacity * sizeof larger->points[0]);
        if (!larger)
            return false;
        larger->capacity = capacity;
        if (more) {
            larger->count = more->count;
            memcpy(larger->points, more->points, more->count * sizeof more->points[0]);
        }
        atomic_store_explicit(&entry->more, larger, memory_order_relaxed);
        strata_host_free(more);
        more = larger;
    }
    more->points[more->count++] = point;
    return true;
}

bool pool_points_add(strata_entry *entry, strata_point point)
{
    if (!point || strata_point_known_complete(point))
        return true;
    point |= STRATA_POINT_WRITE;
    const strata_point first = first_of(entry), second = second_of(entry);
    if (!first || covers(first, point))
        set_first(entry, first ? later(first, point) : point);
    else if (!second || covers(second, point))
        set_second(entry, second ? later(second, point) : point);
    else
        return append(entry, point);
    return true;
}

void pool_points_join(strata_entry *entry)
{
    const strata_point point = later(first_of(entry), second_of(entry));
    pool_points_clear(entry);
    set_first(entry, point | STRATA_POINT_WRITE);
}

bool pool_points_add_all(strata_entry *entry, const strata_entry *from)
{
    const strata_more_points *more = more_of(from);
    bool added = pool_points_add(entry, first_of(from)) && pool_points_add(entry, second_of(from));
    for (uint32_t i = 0; added && more && i < more->count; i++)
        added = pool_points_add(entry, more->points[i]);
    return added;
}

bool pool_is_complete(const strata_entry *entry)
{
    return !pool_points_pending((strata_entry *)entry);
}
