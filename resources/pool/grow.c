/* Memory for requests that no free extent serves. The steps: new memory within the overhead limit; free complete
 * memory, remapped without copying or stopping a stream; new memory beyond the overhead limit. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/pool/overhead.h"
#include "resources/pool/remap.h"
#include "resources/pool/thread_cache.h"
#include "resources/pool/window.h"

enum {
    GROW_SHARE = 64, /* part of what is reserved, by which memory grows, */
    GROW_MOST = 64,  /* in at most so many granules */
};

/* ---- fits ---- */

/* A hole and the free memory on its sides that serve a request. Memory is mapped from the hole's start, or up to its
 * end. */
typedef struct pool_fit {
    uint32_t slot;
    bool at_end;          /* mapped up to the hole's end */
    uint64_t needed;      /* bytes to be mapped */
    uint64_t room;        /* of the hole */
    CUdeviceptr from, to; /* with the used parts of the sides */
} pool_fit;

static uint64_t side_of(const pool_fit *fit)
{
    return fit->to - fit->from - fit->room;
}

/* Free bytes beside a hole, whatever they wait for; with `alone`, one extent that needs no wait. */
static uint64_t usable_bytes(const pool *self, const pool_need *need, bool alone, uint32_t slot, bool before)
{
    uint64_t bytes = 0;
    for (;;) {
        const pool_extent *at = pool_extent_at(&self->heap, slot);
        slot = before ? at->previous : at->next;
        const pool_extent *extent = slot ? pool_extent_at(&self->heap, slot) : NULL;
        if (!extent || extent->state != POOL_FREE)
            return bytes;
        bool usable =
            !alone || extent->timeline == POOL_TIMELINE_NONE || extent->timeline == need->stream->timeline->number;
        bytes += usable ? pool_bytes_of(pool_entry(&self->heap, slot)) : 0;
        if (alone)
            return bytes;
    }
}

/* False: no fit with `extra` bytes to spare. */
static bool fit_in(const pool *self, const pool_need *need, bool alone, uint32_t slot, uint64_t extra, pool_fit *fit)
{
    const uint64_t all = pool_room_for(need);
    const strata_entry *entry = pool_entry(&self->heap, slot);
    const CUdeviceptr from = pool_address_of(entry), to = from + pool_bytes_of(entry);
    const uint64_t room = to - from;
    const uint64_t before = usable_bytes(self, need, alone, slot, true);
    const uint64_t behind = usable_bytes(self, need, alone, slot, false);
    const uint64_t side = before > behind ? before : behind;
    const uint64_t needed = pool_in_granules(self, all > side ? all - side : 1);
    const bool at_end = behind > before;
    *fit = (pool_fit){slot, at_end, needed, room, at_end ? from : from - before, at_end ? to + behind : to};
    if (needed + extra <= room)
        return true;
    *fit = (pool_fit){slot, at_end, room, room, from - before, to + behind}; /* all of it, with both sides */
    return !extra && before + room + behind >= all;
}

static bool is_better_fit(const pool_fit *a, const pool_fit *b)
{
    return a->needed != b->needed ? a->needed < b->needed : side_of(a) < side_of(b);
}

static bool find_fit(const pool *self, const pool_need *need, bool alone, uint64_t extra, pool_fit *fit)
{
    const pool_heap *heap = &self->heap;
    bool found = false;
    for (uint32_t slot = pool_heap_first_hole(heap); slot; slot = pool_heap_next_hole(heap, slot)) {
        pool_fit here;
        if (!fit_in(self, need, alone, slot, extra, &here) || (found && !is_better_fit(&here, fit)))
            continue;
        *fit = here;
        found = true;
    }
    return found;
}

/* Gives back the rest of a fit's hole; the mapped `bytes` stay taken. 0 without host memory: all of it is a hole again.
 * `lock` is held. */
static uint32_t keep_of_fit(pool *self, const pool_fit *fit, uint64_t bytes)
{
    pool_heap *heap = &self->heap;
    const uint32_t slot = fit->slot;
    if (bytes == fit->room)
        return slot;
    const uint32_t rest = bytes ? pool_heap_split(heap, slot, fit->at_end ? fit->room - bytes : bytes) : 0;
    const uint32_t kept = fit->at_end ? rest : slot;
    pool_heap_give(heap, fit->at_end || !rest ? slot : rest, POOL_HOLE);
    return rest ? kept : 0;
}

static pool_result finish_fit(pool *self, const pool_need *need, uint32_t mapped, pool_outcome *outcome, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    pool_heap *heap = &self->heap;
    const CUdeviceptr address = pool_address_of(pool_entry(heap, mapped));
    const uint16_t timeline = need->stream->timeline->number;
    pool_heap_give(heap, mapped, POOL_FREE);
    pool_heap_join_around(heap, pool_heap_around(heap, address), timeline);
    pool_result found = pool_take_fit(self, need, pool_heap_find(heap, timeline, pool_room_for(need)), slot);
    if (found == POOL_NOTHING && !outcome->alone)
        found = pool_take_others(self, need, slot);
    strata_spin_release(&self->lock);
    if (found == POOL_FOUND && !pool_wait_for_extent(self, need, *slot, outcome))
        found = POOL_NOTHING;
    return found;
}

/* Maps chunks into a fit and cuts the block out, or returns the chunks. If an unmap fails, the range is leaked: it is
 * never put back on the free list. */
static pool_result use_chunks(pool *self, const pool_need *need, const pool_fit *fit, const pool_chunk_list *chunks,
                              pool_outcome *outcome, uint32_t *slot)
{
    const bool made = outcome->result == CUDA_SUCCESS;
    strata_spin_take(&self->lock);
    const uint32_t kept = keep_of_fit(self, fit, made ? chunks->bytes : 0);
    strata_spin_release(&self->lock);
    outcome->host |= made && !kept;
    if (kept)
        outcome->result =
            pool_chunk_list_map(self, chunks, pool_address_of(pool_entry(&self->heap, kept)), &outcome->call);
    const bool mapped = kept && outcome->result == CUDA_SUCCESS;
    if (mapped)
        pool_decay_record(self, kept);
    const bool gone = mapped || pool_chunk_list_drop(self, chunks->numbers, chunks->count);
    pool_record_reserved(self);
    if (mapped)
        return finish_fit(self, need, kept, outcome, slot);
    if (kept && gone) {
        strata_spin_take(&self->lock);
        pool_heap_give(&self->heap, kept, POOL_HOLE);
        strata_spin_release(&self->lock);
    }
    return POOL_NOTHING;
}

/* ---- new memory ---- */

/* At most what the device has. */
static uint64_t most_to_be_had(const pool *self, const pool_outcome *outcome)
{
    const uint64_t most = pool_most_reserved(self), total = self->device->info.total_bytes;
    const uint64_t there = outcome->ceiling && outcome->ceiling < total ? outcome->ceiling : total;
    return most < there ? most : there;
}

/* At least what is needed. */
static uint64_t bytes_to_grow(const pool *self, const pool_fit *fit, uint64_t most)
{
    const uint64_t granule = self->store.granule;
    uint64_t share = pool_in_granules(self, self->store.reserved / GROW_SHARE);
    if (share > GROW_MOST * granule)
        share = GROW_MOST * granule;
    uint64_t bytes = fit->needed > share ? fit->needed : share;
    const uint64_t initial = pool_initial_size(self);
    if (self->store.reserved + bytes < initial)
        bytes = initial - self->store.reserved;
    return bytes <= fit->room && self->store.reserved + bytes <= most ? bytes : fit->needed;
}

/* False: the outcome has the error. */
static bool enter_scope(pool *self, strata_scope *scope, pool_outcome *outcome)
{
    strata_error_suppress_begin();
    const strata_status status = strata_scope_enter(scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        outcome->wait_error = *strata_error_suppressed();
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS;
}

/* Takes the hole of the cheapest fit, if it needs at most `most` bytes. */
static bool take_hole_for(pool *self, const pool_need *need, bool alone, uint64_t extra, uint64_t most, pool_fit *fit)
{
    strata_spin_take(&self->lock);
    const bool found = find_fit(self, need, alone, extra, fit) && fit->needed <= most;
    if (found)
        pool_heap_take_away(&self->heap, fit->slot);
    strata_spin_release(&self->lock);
    return found;
}

static void give_hole_back(pool *self, const pool_fit *fit)
{
    strata_spin_take(&self->lock);
    pool_heap_give(&self->heap, fit->slot, POOL_HOLE);
    strata_spin_release(&self->lock);
}

/* New memory, with at most `most` bytes reserved. map_lock is held. */
static pool_result grow(pool *self, const pool_need *need, uint64_t most, pool_outcome *outcome, uint32_t *slot)
{
    pool_fit fit;
    strata_scope scope;
    const uint64_t reserved = self->store.reserved;
    if (reserved > most || !take_hole_for(self, need, outcome->alone, 0, most - reserved, &fit))
        return POOL_NOTHING;
    if (!enter_scope(self, &scope, outcome)) {
        give_hole_back(self, &fit);
        return POOL_NOTHING;
    }
    pool_chunk_list chunks = {0};
    outcome->result = pool_chunk_list_make(self, need->bytes, bytes_to_grow(self, &fit, most), &chunks, outcome);
    const pool_result found = use_chunks(self, need, &fit, &chunks, outcome, slot);
    strata_host_free(chunks.numbers);
    strata_scope_leave(&scope);
    return found;
}

/* ---- remapping ---- */

typedef struct pool_making {
    uint64_t spare;   /* made before chunks are remapped */
    uint64_t missing; /* made because none can be remapped */
    uint64_t most;    /* may be reserved */
} pool_making;

/* What cannot be remapped from elsewhere. */
static uint64_t missing_for(pool *self, const pool_remap_terms *how)
{
    strata_spin_take(&self->lock);
    const uint64_t bytes = pool_remappable_bytes(self, 0, UINT64_MAX, how->room, how->may_wait) -
                           pool_remappable_bytes(self, how->from, how->to, how->room, how->may_wait);
    strata_spin_release(&self->lock);
    return how->needed > bytes ? how->needed - bytes : 0;
}

/* Some new chunks, free ones from elsewhere, and new ones for the rest. Indispensable ones come first: if they cannot
 * be made, nothing is remapped. */
static void get_chunks(pool *self, const pool_need *need, const pool_remap_terms *how, const pool_making *making,
                       pool_chunk_list *chunks, pool_outcome *outcome)
{
    const uint64_t spare = making->spare < how->needed ? making->spare : how->needed;
    const uint64_t first = making->missing > spare ? making->missing : spare;
    outcome->result = CUDA_SUCCESS;
    if (first) /* spare memory can be done without */
        outcome->result = pool_chunk_list_make(self, need->bytes, first, chunks, outcome);
    if (chunks->bytes < making->missing && making->missing < first)
        outcome->result = pool_chunk_list_make(self, need->bytes, making->missing, chunks, outcome);
    if (chunks->bytes < making->missing)
        return;
    outcome->result = CUDA_SUCCESS;
    if (!outcome->host)
        pool_chunk_list_collect(self, how, chunks, &outcome->host);
    const uint64_t missing = chunks->bytes < how->needed ? how->needed - chunks->bytes : 0;
    if (outcome->host || (missing && self->store.reserved + missing > making->most))
        outcome->result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (missing)
        outcome->result = pool_chunk_list_make(self, need->bytes, how->needed, chunks, outcome);
}

/* map_lock is held; with `may_wait` oom_lock too. */
static pool_result remap(pool *self, const pool_need *need, uint64_t extra, uint64_t spare, bool may_wait,
                         pool_outcome *outcome, uint32_t *slot)
{
    const uint64_t most = most_to_be_had(self, outcome);
    pool_fit fit;
    strata_scope scope;
    if (!take_hole_for(self, need, outcome->alone, extra, UINT64_MAX, &fit))
        return POOL_NOTHING;
    const pool_remap_terms how = {fit.from, fit.to, fit.needed, fit.room, may_wait};
    const pool_making making = {spare, missing_for(self, &how), most};
    const bool enough = !making.missing || self->store.reserved + making.missing <= most;
    if (!enough || !enter_scope(self, &scope, outcome)) {
        outcome->result = enough ? outcome->result : CUDA_ERROR_OUT_OF_MEMORY;
        give_hole_back(self, &fit);
        return POOL_NOTHING;
    }
    pool_chunk_list chunks = {0};
    const uint64_t began = pool_overhead_clock(self);
    get_chunks(self, need, &how, &making, &chunks, outcome);
    const pool_result found = use_chunks(self, need, &fit, &chunks, outcome, slot);
    if (!may_wait) /* which would release map_lock */
        pool_overhead_record_remapping(self, began + chunks.making_ns, chunks.remapped);
    strata_host_free(chunks.numbers);
    strata_scope_leave(&scope);
    return found;
}

/* ---- the steps ---- */

/* Bytes reserved before memory is remapped. Near a limit without adaptive overhead: memory is kept for what cannot be
 * remapped. */
static uint64_t within_overhead(pool *self, const pool_need *need)
{
    const uint64_t peak = pool_peak_with(self, need);
    uint64_t most = pool_with_overhead(peak, pool_overhead_now(self), self->store.granule);
    if (pool_is_tight(self, most))
        most = pool_with_overhead(peak, self->overhead, self->store.granule);
    return most > pool_initial_size(self) ? most : pool_initial_size(self);
}

static pool_result fill_window(pool *self, const pool_need *need, const pool_terms *terms, pool_outcome *outcome,
                               uint32_t *slot)
{
    pool_window window;
    strata_scope scope;
    if (!pool_window_take(self, need, terms, &window))
        return POOL_NOTHING;
    if (!enter_scope(self, &scope, outcome)) {
        pool_window_leave(self, &window);
        return POOL_NOTHING;
    }
    const pool_result found = pool_window_fill(self, need, terms, &window, outcome, slot);
    strata_scope_leave(&scope);
    return found;
}

static pool_result remap_across_holes(pool *self, const pool_need *need, bool may_wait, pool_outcome *outcome,
                                      uint32_t *slot)
{
    const pool_terms terms = {most_to_be_had(self, outcome), UINT64_MAX, outcome->alone, may_wait};
    return fill_window(self, need, &terms, outcome, slot);
}

pool_result pool_grow_ahead(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    pool_overhead_weigh_polling(self);
    if (!atomic_load_explicit(&self->polling_is_costly, memory_order_relaxed) || pool_lacks_initial(self, need))
        return POOL_NOTHING;
    const uint64_t overhead = within_overhead(self, need);
    if (overhead > pool_most_reserved(self))
        return POOL_NOTHING;
    pool_outcome ahead = {.result = CUDA_SUCCESS, .call = outcome->call, .alone = true};
    const pool_result found = grow(self, need, overhead, &ahead, slot);
    if (ahead.result != CUDA_SUCCESS) /* a poll is cheaper than repeated refusals */
        atomic_store_explicit(&self->polling_is_costly, false, memory_order_relaxed);
    return found;
}

pool_result pool_grow_or_remap(pool *self, const pool_need *need, bool may_wait, pool_outcome *outcome, uint32_t *slot)
{
    if ((outcome->initial = pool_initial_is_too_much(self, need)))
        return POOL_NOTHING;
    outcome->ceiling = 0;
    const uint64_t most = most_to_be_had(self, outcome), overhead = within_overhead(self, need);
    const uint64_t reserved = self->store.reserved, cheap = overhead < most ? overhead : most;
    /* The rest of the overhead limit is used at once, so that the same need is not remapped again. Below a limit it is
     * kept for what cannot be remapped. */
    const uint64_t granule = self->store.granule;
    const bool limited = pool_most_reserved(self) != UINT64_MAX;
    const uint64_t spare = !limited && overhead > reserved ? (overhead - reserved) / granule * granule : 0;
    if (self->takes_finished) /* even if memory grows: the stream's progress is then known */
        pool_poll_own(self, need);
    pool_result found = grow(self, need, cheap, outcome, slot);
    outcome->initial = found == POOL_NOTHING && pool_lacks_initial(self, need);
    if (outcome->initial)
        return outcome->host ? POOL_FAILED : found;
    if (found == POOL_NOTHING && !outcome->host)
        found = remap(self, need, 0, spare, may_wait, outcome, slot);
    if (found == POOL_NOTHING && !outcome->host)
        found = remap(self, need, self->chunk_bytes, spare, may_wait, outcome, slot);
    if (found == POOL_NOTHING && !outcome->host && outcome->result == CUDA_ERROR_OUT_OF_MEMORY)
        found = remap_across_holes(self, need, may_wait, outcome, slot);
    return found == POOL_NOTHING && outcome->host ? POOL_FAILED : found;
}

pool_result pool_remap_least_fragmenting(pool *self, const pool_need *need, uint64_t granules, uint32_t *slot)
{
    if (!strata_lock_try(&self->map_lock))
        return POOL_NOTHING;
    const uint64_t most = pool_most_reserved(self), overhead = within_overhead(self, need);
    const pool_terms terms = {.most = overhead < most ? overhead : most, .granules = granules, .alone = true};
    pool_outcome outcome = {.call = self->store.source->make_call, .alone = true};
    const pool_result found = fill_window(self, need, &terms, &outcome, slot);
    if (found == POOL_FOUND)
        pool_record_peak(self, need);
    strata_lock_release(&self->map_lock);
    return found;
}
