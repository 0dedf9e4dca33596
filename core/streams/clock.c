/* Sorted arrays of points, merged like sorted lists. */
#include "core/streams/clock.h"

#include "core/base/host_memory.h"

strata_clock *strata_clock_ref(strata_clock *clock)
{
    if (clock)
        atomic_fetch_add_explicit(&clock->refs, 1, memory_order_relaxed);
    return clock;
}

void strata_clock_unref(strata_clock *clock)
{
    if (clock && atomic_fetch_sub_explicit(&clock->refs, 1, memory_order_acq_rel) == 1)
        strata_host_free(clock);
}

bool strata_clock_covers(const strata_clock *clock, strata_point point)
{
    if (!clock)
        return false;
    uint16_t timeline = strata_point_timeline(point);
    uint32_t low = 0, high = clock->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        uint16_t here = strata_point_timeline(clock->points[middle]);
        if (here == timeline)
            return strata_point_epoch(point) <= strata_point_epoch(clock->points[middle]);
        if (here < timeline)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* If the last entry is of the point's timeline, raises it. Points arrive in ascending order. */
static void append(strata_clock *clock, strata_point point)
{
    if (clock->count) {
        strata_point *last = &clock->points[clock->count - 1];
        if (strata_point_timeline(*last) == strata_point_timeline(point)) {
            if (*last < point)
                *last = point;
            return;
        }
    }
    clock->points[clock->count++] = point;
}

strata_clock *strata_clock_merge(const strata_clock *a, const strata_clock *b, strata_point point,
                                 bool (*forget)(strata_point point))
{
    uint32_t a_count = a ? a->count : 0, b_count = b ? b->count : 0;
    size_t most = (size_t)a_count + b_count + 1;
    strata_clock *merged = strata_host_zalloc(sizeof *merged + most * sizeof merged->points[0]);
    if (!merged)
        return NULL;
    atomic_init(&merged->refs, 1);
    point &= ~STRATA_POINT_WRITE;
    uint32_t i = 0, j = 0;
    while (i < a_count || j < b_count || point) {
        strata_point next = UINT64_MAX;
        uint32_t *from = NULL;
        if (i < a_count) {
            next = a->points[i];
            from = &i;
        }
        if (j < b_count && b->points[j] < next) {
            next = b->points[j];
            from = &j;
        }
        if (point && point < next) {
            next = point;
            from = NULL;
        }
        if (from)
            ++*from;
        else
            point = 0;
        if (!forget(next))
            append(merged, next);
    }
    return merged;
}
