/* The addresses with memory, for programs that show them. */
#include "core/base/error.h"
#include "resources/pool/operations.h"

enum { EXTENTS_AT_ONCE = 64 }; /* under lock */

typedef struct range_walk {
    CUdeviceptr from;        /* where the next look begins */
    strata_pool_range range; /* not yet told; bytes 0: none */
    void (*visit)(const strata_pool_range *range, void *data);
    void *data;
} range_walk;

static void tell(range_walk *walk)
{
    if (walk->range.bytes)
        walk->visit(&walk->range, walk->data);
    walk->range.bytes = 0;
}

static void add(range_walk *walk, const strata_pool_range *next)
{
    strata_pool_range *range = &walk->range;
    if (!range->bytes || range->address + range->bytes != next->address || range->small != next->small) {
        tell(walk);
        *range = *next;
    } else {
        range->bytes += next->bytes;
    }
}

/* Of the next extents; *more: there were some. Returns how many have memory. */
static size_t read_ranges(pool *self, CUdeviceptr *from, strata_pool_range *seen, bool *more)
{
    size_t count = 0;
    strata_spin_take(&self->lock);
    uint32_t slot = pool_heap_from(&self->heap, *from);
    *more = slot != 0;
    for (int i = 0; slot && i < EXTENTS_AT_ONCE; i++, slot = pool_heap_behind(&self->heap, slot)) {
        const strata_entry *entry = pool_entry(&self->heap, slot);
        const pool_extent *extent = pool_extent_at(&self->heap, slot);
        if (extent->state != POOL_HOLE && extent->state != POOL_AWAY)
            seen[count++] =
                (strata_pool_range){pool_address_of(entry), pool_bytes_of(entry), extent->side == POOL_SMALL};
        *from = pool_address_of(entry) + pool_bytes_of(entry);
    }
    strata_spin_release(&self->lock);
    return count;
}

strata_status strata_pool_visit_ranges(strata_resource *resource,
                                       void (*visit)(const strata_pool_range *range, void *data), void *data)
{
    pool *self = resource ? pool_at_or_below(resource) : NULL;
    if (!self || !visit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_pool_visit_ranges: %s",
                           visit ? "no pool at or below this layer" : "visit is NULL");
    range_walk walk = {.visit = visit, .data = data};
    bool more = atomic_load_explicit(&self->started, memory_order_acquire);
    strata_pool_range seen[EXTENTS_AT_ONCE];
    while (more) {
        const size_t count = read_ranges(self, &walk.from, seen, &more);
        for (size_t i = 0; i < count; i++)
            add(&walk, &seen[i]);
    }
    tell(&walk);
    return STRATA_SUCCESS;
}
