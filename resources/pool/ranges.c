/* The addresses with memory, for programs that show them. */
#include "core/base/driver_state.h"
#include "resources/pool/operations.h"

typedef struct range_walk {
    strata_pool_range last; /* not yet told; bytes 0: none */
    bool whole;             /* a contiguous block's: it is joined to nothing */
    void (*visit)(const strata_pool_range *range, void *data);
    void *data;
} range_walk;

static void tell(range_walk *walk)
{
    if (walk->last.bytes)
        walk->visit(&walk->last, walk->data);
    walk->last.bytes = 0;
}

static void add(range_walk *walk, const pool_seen_extent *next)
{
    const bool whole = next->side == POOL_CONTIGUOUS, small = next->side == POOL_SMALL;
    if (next->state == POOL_HOLE || next->state == POOL_AWAY)
        return;
    if (walk->last.address + walk->last.bytes != next->address || walk->last.small != small || walk->whole || whole) {
        tell(walk);
        walk->last = (strata_pool_range){.address = next->address, .small = small};
        walk->whole = whole;
    }
    walk->last.bytes += next->bytes;
}

strata_status strata_pool_visit_ranges(strata_resource *resource,
                                       void (*visit)(const strata_pool_range *range, void *data), void *data)
{
    pool *self = resource ? pool_at_or_below(resource) : NULL;
    const char *missing = !visit ? "visit is NULL" : !self ? "no pool at or below this layer" : NULL;
    const strata_status forked = strata_check_not_forked();
    if (forked != STRATA_SUCCESS || missing)
        return missing ? strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_pool_visit_ranges: %s", missing) : forked;
    range_walk walk = {.visit = visit, .data = data};
    CUdeviceptr from = 0;
    pool_seen_extent seen[POOL_SEEN_MOST];
    for (size_t count; (count = pool_look_at_extents(self, &from, seen));)
        for (size_t i = 0; i < count; i++)
            add(&walk, &seen[i]);
    tell(&walk);
    return STRATA_SUCCESS;
}
