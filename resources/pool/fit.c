/* Which free extent serves a request, and which end of it. */
#include "core/base/error.h"
#include "resources/pool/internal.h"

enum { LIMITED_FITS = 32 /* compared below max_size */ };

/* Wholly free granules of the device that a block touches at either end of a free range. Only such granules can be
 * remapped. */
typedef struct pool_touched {
    uint64_t at_start, at_end;
} pool_touched;

static pool_touched granules_touched(const pool *self, const strata_entry *range, uint64_t bytes)
{
    if (!self->store.source->remappable || !pool_spares_granules(self))
        return (pool_touched){0};
    const CUdeviceptr start = pool_address_of(range), end = start + pool_bytes_of(range);
    const uint64_t granule = self->store.granule, first = (start + granule - 1) / granule, last = end / granule;
    if (first >= last)
        return (pool_touched){0};
    const uint64_t upto = (start + bytes + granule - 1) / granule, from = (end - bytes) / granule;
    return (pool_touched){(upto < last ? upto : last) - first, last - (from > first ? from : first)};
}

uint32_t pool_cut_out(pool *self, uint32_t slot, const pool_need *need)
{
    pool_heap *heap = &self->heap;
    const strata_entry *entry = pool_entry(heap, slot);
    const CUdeviceptr address = pool_address_of(entry), end = address + pool_bytes_of(entry);
    const pool_touched touched = granules_touched(self, entry, need->bytes);
    uint64_t before = -address & (need->alignment - 1);
    if (touched.at_end < touched.at_start)
        before = ((end - need->bytes) & ~(need->alignment - 1)) - address;
    if (before) {
        const uint32_t aligned = pool_heap_split(heap, slot, before);
        pool_heap_give(heap, slot, POOL_FREE);
        if (!aligned)
            return 0;
        slot = aligned;
    }
    if (pool_bytes_of(pool_entry(heap, slot)) == need->bytes)
        return slot;
    const uint32_t rest = pool_heap_split(heap, slot, need->bytes);
    pool_heap_give(heap, rest ? rest : slot, POOL_FREE);
    return rest ? slot : 0;
}

/* Adds the bytes of free extents from one on to the end of its range, or to its beginning. False: a block is there. */
static bool add_free(const pool *self, uint32_t slot, bool forwards, uint64_t *bytes)
{
    while (slot) {
        const pool_extent *extent = pool_extent_at(&self->heap, slot);
        if (extent->state != POOL_FREE)
            return false;
        *bytes += pool_bytes_of(pool_entry(&self->heap, slot));
        slot = forwards ? extent->next : extent->previous;
    }
    return true;
}

/* Whether a fit is in a wholly free fixed chunk that was made for a much larger request: a part of it in use would keep
 * the rest from going back. The initial size stays anyway. */
static bool is_wasteful(const pool *self, const pool_need *need, uint32_t fit)
{
    if (self->store.source->remappable ||
        atomic_load_explicit(&self->reserved, memory_order_relaxed) <= pool_initial_size(self))
        return false;
    uint64_t bytes = pool_bytes_of(pool_entry(&self->heap, fit));
    const pool_extent *extent = pool_extent_at(&self->heap, fit);
    return add_free(self, extent->next, true, &bytes) && add_free(self, extent->previous, false, &bytes) &&
           bytes > self->chunk_bytes && bytes > need->bytes / 1000 * POOL_FIXED_FIT;
}

/* A contiguous extent is never cut: what is left of its chunk would be another block's. */
static bool is_whole(const pool *self, const pool_need *need, uint32_t fit)
{
    const strata_entry *entry = pool_entry(&self->heap, fit);
    return pool_bytes_of(entry) == need->bytes && !(pool_address_of(entry) & (need->alignment - 1));
}

pool_result pool_take_fit(pool *self, const pool_need *need, uint32_t fit, uint32_t *slot)
{
    const bool contiguous = need->side == POOL_CONTIGUOUS;
    if (!fit || is_wasteful(self, need, fit) || (contiguous && !is_whole(self, need, fit)))
        return POOL_NOTHING;
    pool_heap_take(&self->heap, fit);
    *slot = pool_cut_out(self, fit, need);
    return *slot ? POOL_FOUND : POOL_FAILED;
}

uint32_t pool_least_fragmenting(pool *self, uint32_t fit, uint64_t bytes)
{
    uint32_t best = fit;
    uint64_t least = UINT64_MAX;
    if (!pool_spares_granules(self))
        return fit;
    for (unsigned i = 0; fit && least && i < LIMITED_FITS; i++) {
        const pool_touched touched = granules_touched(self, pool_entry(&self->heap, fit), bytes);
        const uint64_t here = touched.at_end < touched.at_start ? touched.at_end : touched.at_start;
        if (here < least) {
            best = fit;
            least = here;
        }
        fit = pool_heap_next(&self->heap, fit);
    }
    return best;
}

pool_result pool_take_run(pool *self, const pool_need *need, uint16_t timeline, uint32_t *slot)
{
    if (need->side == POOL_CONTIGUOUS)
        return POOL_NOTHING;
    const CUdeviceptr start = pool_heap_find_run(&self->heap, need->side, timeline, pool_room_for(need));
    if (!start || is_wasteful(self, need, pool_heap_around(&self->heap, start)))
        return POOL_NOTHING;
    const uint32_t taken = pool_heap_take_range(&self->heap, start, pool_room_for(need));
    *slot = taken ? pool_cut_out(self, taken, need) : 0;
    return *slot ? POOL_FOUND : POOL_FAILED;
}

pool_result pool_take_others(pool *self, const pool_need *need, uint32_t *slot)
{
    const uint64_t bytes = pool_room_for(need);
    const uint32_t fit = pool_heap_find_elsewhere(&self->heap, need->side, bytes, NULL, NULL);
    pool_result found = pool_take_fit(self, need, pool_least_fragmenting(self, fit, bytes), slot);
    return found == POOL_NOTHING ? pool_take_run(self, need, POOL_TIMELINE_MULTI, slot) : found;
}

bool pool_wait_for_extent(pool *self, const pool_need *need, uint32_t slot, pool_outcome *outcome)
{
    const uint16_t timeline = pool_points_timeline(pool_entry(&self->heap, slot));
    strata_error_suppress_begin();
    strata_status status =
        strata_uses_visit(pool_entry(&self->heap, slot), strata_point_try_order, (void *)need->stream);
    if (status != STRATA_SUCCESS && outcome) {
        outcome->wait_error = *strata_error_suppressed();
        outcome->own_only = true;
    }
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS) {
        const bool others = timeline != POOL_TIMELINE_NONE && timeline != need->stream->timeline->number;
        atomic_fetch_add_explicit(&self->counts.steals, others, memory_order_relaxed);
        return true;
    }
    pool_give_range(self, slot, POOL_FREE);
    return false;
}

pool_work pool_work_on_chunk(const pool *self, const pool_chunk *chunk)
{
    const uint32_t slot = pool_heap_free_at(&self->heap, chunk->address, pool_chunk_bytes(chunk));
    return pool_heap_work_on(&self->heap, slot, pool_behind_chunk(chunk), POOL_TIMELINE_NONE);
}

uint32_t pool_take_free_chunk(pool *self, const pool_chunk *chunk, bool may_wait, pool_state state)
{
    uint32_t slot = 0;
    strata_spin_take(&self->lock);
    if (pool_work_on_chunk(self, chunk) <= (may_wait ? POOL_OTHERS : POOL_OVER))
        slot = pool_heap_take_range(&self->heap, chunk->address, pool_chunk_bytes(chunk));
    if (slot)
        pool_extent_at(&self->heap, slot)->state = (uint8_t)state;
    strata_spin_release(&self->lock);
    return slot;
}
