/* Memory when no free extent serves: new memory within what the policy allows; free complete memory, moved without
 * copying or stopping a stream; new memory up to the limit. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/pool/policy.h"
#include "resources/pool/remap.h"
#include "resources/pool/thread_cache.h"

/* ---- fits ---- */

enum { MOST_FITS = 16 /* tried before a request is refused */ };

/* A hole, and free memory beside it, that serve a request. Memory is mapped from the hole's start, or up to its end. */
typedef struct pool_fit {
    uint32_t slot;
    bool at_end;          /* mapped up to the end */
    bool other;           /* not beside the larger side, although that would do */
    uint64_t needed;      /* bytes to map */
    uint64_t room;        /* of the hole */
    CUdeviceptr from, to; /* with the sides' used parts */
} pool_fit;

static uint64_t side_of(const pool_fit *fit)
{
    return fit->to - fit->from - fit->room;
}

/* Free bytes beside a hole; with `own_only` only of memory that needs no wait. */
static uint64_t usable_bytes(const pool *self, const pool_need *need, bool own_only, uint32_t slot, bool before)
{
    const pool_extent *hole = pool_extent_at(&self->heap, slot);
    const uint32_t beside = before ? hole->previous : hole->next;
    const pool_extent *extent = beside ? pool_extent_at(&self->heap, beside) : NULL;
    if (!extent || extent->state != POOL_FREE)
        return 0;
    const bool own = extent->timeline == POOL_TIMELINE_NONE || extent->timeline == need->stream->timeline->number;
    return own || !own_only ? pool_bytes_of(pool_entry(&self->heap, beside)) : 0;
}

typedef enum pool_way {
    POOL_BEHIND_FREE, /* mapped from the start, behind free memory */
    POOL_BEFORE_FREE, /* up to the end */
    POOL_BETWEEN,     /* all */
    POOL_WAYS,
} pool_way;

static uint64_t needed_beside(const pool *self, const pool_need *need, uint64_t side)
{
    const uint64_t all = pool_room_for(need);
    return pool_in_granules(self, all > side ? all - side : 1);
}

typedef struct pool_beside {
    uint64_t before, behind;
} pool_beside;

static bool fit_in(const pool *self, const pool_need *need, uint32_t slot, pool_beside free, pool_way way,
                   pool_fit *fit)
{
    const strata_entry *entry = pool_entry(&self->heap, slot);
    const CUdeviceptr from = pool_address_of(entry), to = from + pool_bytes_of(entry);
    const uint64_t room = to - from;
    const bool at_end = way == POOL_BEFORE_FREE, between = way == POOL_BETWEEN;
    *fit = (pool_fit){
        slot, at_end, false, room, room, at_end ? from : from - free.before, at_end || between ? to + free.behind : to};
    const uint64_t least = needed_beside(self, need, free.before > free.behind ? free.before : free.behind);
    fit->other = between ? least <= room : at_end != (free.behind > free.before);
    if (between)
        return free.before + room + free.behind >= pool_room_for(need);
    fit->needed = needed_beside(self, need, at_end ? free.behind : free.before);
    return fit->needed <= room;
}

/* Which fit is better: one in the usual way; then the one with less new memory, less free memory taken in, a smaller
 * hole, a lower address. */
static bool is_better_fit(const pool_fit *a, const pool_fit *b)
{
    if (a->other != b->other)
        return b->other;
    if (a->needed != b->needed)
        return a->needed < b->needed;
    if (side_of(a) != side_of(b))
        return side_of(a) < side_of(b);
    if (a->room != b->room)
        return a->room < b->room;
    return a->from < b->from;
}

/* Finds the best fit; with `after`, a fit that was of no use, the best one behind that. */
static bool find_fit(const pool *self, const pool_need *need, bool own_only, const pool_fit *after, pool_fit *fit)
{
    const pool_heap *heap = &self->heap;
    bool found = false;
    for (uint32_t slot = pool_heap_first_hole(heap, need->side); slot; slot = pool_heap_next_hole(heap, slot)) {
        const pool_beside free = {usable_bytes(self, need, own_only, slot, true),
                                  usable_bytes(self, need, own_only, slot, false)};
        for (unsigned way = 0; way < POOL_WAYS; way++) {
            pool_fit here;
            if (!fit_in(self, need, slot, free, (pool_way)way, &here) || (after && !is_better_fit(after, &here)) ||
                (found && !is_better_fit(&here, fit)))
                continue;
            *fit = here;
            found = true;
        }
    }
    return found;
}

/* Gives the rest of the hole back; the mapped `bytes` stay taken. 0 without host memory: all is a hole. `lock` is held.
 */
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

/* Frees the mapped memory and takes the block out of it, with its neighbours if needed. */
static pool_result finish_fit(pool *self, const pool_need *need, uint32_t mapped, pool_outcome *outcome, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    pool_heap *heap = &self->heap;
    const uint16_t timeline = need->stream->timeline->number;
    pool_heap_give(heap, mapped, POOL_FREE);
    pool_result found =
        pool_take_fit(self, need, pool_heap_find(heap, need->side, timeline, pool_room_for(need)), slot);
    if (found == POOL_NOTHING) /* with its neighbours */
        found = pool_take_run(self, need, timeline, slot);
    if (found == POOL_NOTHING && !outcome->own_only)
        found = pool_take_others(self, need, slot);
    strata_spin_release(&self->lock);
    if (found == POOL_FOUND && !pool_wait_for_extent(self, need, *slot, outcome))
        found = POOL_NOTHING;
    return found;
}

/* Maps chunks and cuts the block out, or returns them. If an unmap fails, the range is leaked: never put back on the
 * free list. */
static pool_result use_chunks(pool *self, const pool_need *need, const pool_fit *fit, const pool_chunk_list *chunks,
                              pool_outcome *outcome, uint32_t *slot)
{
    const bool made = outcome->result == CUDA_SUCCESS;
    strata_spin_take(&self->lock);
    const uint32_t kept = keep_of_fit(self, fit, made ? chunks->bytes : 0);
    strata_spin_release(&self->lock);
    const bool ready = kept && pool_chunk_list_inherit(self, chunks, kept);
    outcome->no_host_memory |= made && !ready;
    if (ready)
        outcome->result =
            pool_chunk_list_map(self, chunks, pool_address_of(pool_entry(&self->heap, kept)), &outcome->call);
    const bool mapped = ready && outcome->result == CUDA_SUCCESS;
    if (mapped)
        pool_decay_record(self, kept);
    const bool gone = mapped || pool_chunk_list_drop(self, chunks->numbers, chunks->count);
    pool_record_reserved(self);
    if (mapped)
        return finish_fit(self, need, kept, outcome, slot);
    if (kept && gone)
        pool_give_range(self, kept, POOL_HOLE);
    return POOL_NOTHING;
}

/* ---- new memory ---- */

uint64_t pool_most_to_be_had(const pool *self, const pool_outcome *outcome)
{
    const uint64_t most = pool_most_reserved(self), total = self->device->info.total_bytes;
    const uint64_t there = outcome->refused && outcome->ceiling < total ? outcome->ceiling : total;
    return most < there ? most : there;
}

static uint64_t bytes_to_grow(pool *self, const pool_need *need, const pool_fit *fit, uint64_t most)
{
    const uint64_t reserved = self->store.reserved, initial = pool_initial_size(self),
                   least = pool_least_made(self, need);
    uint64_t bytes = fit->needed > least ? fit->needed : least;
    if (reserved + bytes < initial)
        bytes = initial - reserved;
    if (reserved + bytes > most)
        bytes = (most - reserved) / self->store.granule * self->store.granule;
    if (bytes > fit->room)
        bytes = fit->room;
    return bytes > fit->needed ? bytes : fit->needed;
}

bool pool_enter_scope(pool *self, strata_call_scope *scope, pool_outcome *outcome)
{
    strata_error_suppress_begin();
    strata_status status = strata_check_device_now(self->device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        outcome->wait_error = *strata_error_suppressed();
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS;
}

/* Takes the hole of the best fit, if that needs at most `most` bytes. `after` as in find_fit. */
static bool take_hole_for(pool *self, const pool_need *need, bool own_only, uint64_t most, const pool_fit *after,
                          pool_fit *fit)
{
    strata_spin_take(&self->lock);
    const bool found = find_fit(self, need, own_only, after, fit) && fit->needed <= most;
    if (found)
        pool_heap_take_away(&self->heap, fit->slot);
    strata_spin_release(&self->lock);
    return found;
}

/* Maps new memory, if at most `most` bytes are then reserved. map_lock is held. */
static pool_result grow(pool *self, const pool_need *need, uint64_t most, pool_outcome *outcome, uint32_t *slot)
{
    pool_fit fit;
    strata_call_scope scope;
    const uint64_t reserved = self->store.reserved;
    if (reserved > most || !take_hole_for(self, need, outcome->own_only, most - reserved, NULL, &fit))
        return POOL_NOTHING;
    if (!pool_enter_scope(self, &scope, outcome)) {
        pool_give_range(self, fit.slot, POOL_HOLE);
        return POOL_NOTHING;
    }
    pool_chunk_list chunks = {0};
    const uint64_t bytes = bytes_to_grow(self, need, &fit, most);
    outcome->result = pool_chunk_list_make(self, need, bytes, &chunks, outcome);
    const pool_result found = use_chunks(self, need, &fit, &chunks, outcome, slot);
    strata_host_free(chunks.numbers);
    strata_call_scope_leave(&scope);
    return found;
}

/* ---- moving ---- */

/* Bytes in free chunks of at most `room`, outside of the destination. */
static uint64_t movable_bytes(pool *self, const pool_remap_terms *how, uint64_t room)
{
    strata_spin_take(&self->lock);
    const uint64_t bytes = pool_remappable_bytes(self, how, 0, UINT64_MAX, room) -
                           pool_remappable_bytes(self, how, how->from, how->to, room);
    strata_spin_release(&self->lock);
    return bytes;
}

static uint64_t less(uint64_t bytes, uint64_t by)
{
    return bytes > by ? bytes - by : 0;
}

/* Bytes that have to be made in any case: `needed` less what moves or is exchanged. UINT64_MAX: they cannot be had. */
static uint64_t indispensable_bytes(pool *self, const pool_remap_terms *how, uint64_t most)
{
    const pool_remap_terms gone = pool_terms_without_order(how);
    const uint64_t moved = movable_bytes(self, how, how->room);
    const uint64_t exchanged = movable_bytes(self, &gone, UINT64_MAX) - movable_bytes(self, &gone, how->room);
    const uint64_t made = less(how->needed, moved);
    return !made || self->store.reserved + made <= most + exchanged ? less(how->needed, moved + exchanged) : UINT64_MAX;
}

/* Fills the list. What is indispensable is made first: if the device refuses it, nothing has been moved. Then come free
 * chunks that fit, then new ones; beyond what is allowed, larger chunks are returned for those. */
static CUresult get_chunks(pool *self, const pool_need *need, const pool_remap_terms *how, const pool_making *making,
                           pool_chunk_list *chunks, pool_outcome *outcome)
{
    const uint64_t indispensable = indispensable_bytes(self, how, making->most);
    if (indispensable == UINT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = pool_chunk_list_make(self, need, indispensable, chunks, outcome);
    while (result == CUDA_SUCCESS && chunks->bytes < how->needed && !outcome->no_host_memory) {
        pool_chunk_list_collect(self, how, chunks, &outcome->no_host_memory);
        const uint64_t missing = less(how->needed, chunks->bytes), after = self->store.reserved + missing;
        if (!missing || (after > making->allowed && pool_chunk_list_give_back(self, how, chunks)))
            continue;
        result = after > making->most ? CUDA_ERROR_OUT_OF_MEMORY
                                      : pool_chunk_list_make(self, need, how->needed, chunks, outcome);
    }
    return outcome->no_host_memory ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* Unfinished memory moves where streams' progress is learnt, so that former places are given up, and while as many
 * addresses are left as all memory needs. That of other streams, for which this one waits, moves only where memory is
 * preferred or the host would wait: elsewhere so much would move that the pool held more instead. */
static pool_remap_terms terms_for(pool *self, const pool_need *need, const pool_fit *fit, bool may_wait, bool own_only)
{
    strata_spin_take(&self->lock);
    const uint64_t addresses = self->heap.halves[need->side].holes.bytes + fit->room; /* which was taken */
    strata_spin_release(&self->lock);
    const bool unfinished_too = self->takes_finished && addresses >= self->store.reserved;
    const bool matters = may_wait || self->given.prefer == STRATA_POOL_PREFER_MEMORY;
    return (pool_remap_terms){.from = fit->from,
                              .to = fit->to,
                              .needed = fit->needed,
                              .room = fit->room,
                              .own = unfinished_too ? need->stream->timeline->number : (uint16_t)POOL_TIMELINE_NONE,
                              .others = unfinished_too && matters && self->waits && !own_only,
                              .leaves_small =
                                  !may_wait && need->side == POOL_LARGE && pool_lacks_small(self, POOL_SMALL_SPARE),
                              .may_wait = may_wait};
}

/* Takes a hole for which chunks can be had. The cheapest fit may take in the very memory that would be moved: then
 * others are tried. */
static bool take_possible_hole(pool *self, const pool_need *need, const pool_making *making, bool may_wait,
                               pool_outcome *outcome, pool_fit *fit)
{
    pool_fit last;
    bool found = take_hole_for(self, need, outcome->own_only, UINT64_MAX, NULL, fit);
    for (unsigned tries = 1; found; tries++) {
        const pool_remap_terms how = terms_for(self, need, fit, may_wait, outcome->own_only);
        if (indispensable_bytes(self, &how, making->most) != UINT64_MAX)
            return true;
        outcome->result = CUDA_ERROR_OUT_OF_MEMORY;
        pool_give_range(self, fit->slot, POOL_HOLE);
        last = *fit;
        found = tries < MOST_FITS && take_hole_for(self, need, outcome->own_only, UINT64_MAX, &last, fit);
    }
    return false;
}

/* Maps free chunks of other places, and new ones for the rest. map_lock is held; with `may_wait` oom_lock too. */
static pool_result move(pool *self, const pool_need *need, const pool_making *making, bool may_wait,
                        pool_outcome *outcome, uint32_t *slot)
{
    pool_fit fit;
    strata_call_scope scope;
    if (!take_possible_hole(self, need, making, may_wait, outcome, &fit))
        return POOL_NOTHING;
    const pool_remap_terms how = terms_for(self, need, &fit, may_wait, outcome->own_only);
    if (!pool_enter_scope(self, &scope, outcome)) {
        pool_give_range(self, fit.slot, POOL_HOLE);
        return POOL_NOTHING;
    }
    pool_chunk_list chunks = {0};
    outcome->result = get_chunks(self, need, &how, making, &chunks, outcome);
    const pool_result found = use_chunks(self, need, &fit, &chunks, outcome, slot);
    if (found == POOL_FOUND)
        pool_policy_record_moves(self, chunks.moved);
    strata_host_free(chunks.numbers);
    strata_call_scope_leave(&scope);
    return found;
}

/* ---- the steps ---- */

pool_result pool_grow_ahead(pool_search *search)
{
    pool *self = search->self;
    const pool_need *need = search->need;
    pool_weigh_polling(self);
    if (!atomic_load_explicit(&self->polling_is_costly, memory_order_relaxed) || pool_lacks_initial(self, need) ||
        !pool_may_grow_ahead(self, need))
        return POOL_NOTHING;
    const uint64_t allowed = pool_allowed(self, need);
    if (allowed > pool_most_reserved(self))
        return POOL_NOTHING;
    pool_outcome ahead = {.result = CUDA_SUCCESS, .call = search->outcome->call, .own_only = true};
    const pool_result found = grow(self, need, allowed, &ahead, search->slot);
    if (ahead.result != CUDA_SUCCESS) /* a poll is cheaper */
        atomic_store_explicit(&self->polling_is_costly, false, memory_order_relaxed);
    return found;
}

/* The initial size is made on the large side, where it serves most requests and comes in few chunks. */
static pool_need need_with_initial(const pool *self, const pool_need *need)
{
    pool_need with_initial = *need;
    if (pool_lacks_initial(self, need))
        with_initial.side = POOL_LARGE;
    return with_initial;
}

static pool_result without_host_memory(const pool_outcome *outcome, pool_result found)
{
    return found == POOL_NOTHING && outcome->no_host_memory ? POOL_FAILED : found;
}

pool_result pool_grow(pool_search *search)
{
    pool *self = search->self;
    pool_outcome *outcome = search->outcome;
    const pool_need need = need_with_initial(self, search->need);
    if ((outcome->initial = pool_initial_is_too_much(self, &need)))
        return POOL_NOTHING;
    outcome->refused = false;
    if (self->takes_finished) /* even if memory grows: shows the stream's progress */
        pool_poll_own(self, &need);
    pool_unmap_formers(self);
    pool_making *making = &search->making;
    *making = (pool_making){.allowed = pool_allowed(self, &need), .most = pool_most_to_be_had(self, outcome)};
    const uint64_t cheap = making->allowed < making->most ? making->allowed : making->most;
    const pool_result found = grow(self, &need, cheap, outcome, search->slot);
    outcome->initial = found == POOL_NOTHING && pool_lacks_initial(self, &need);
    return without_host_memory(outcome, found);
}

/* Tries a second time if the device refused what it was thought to have. */
static pool_result try_to_move(pool_search *search)
{
    pool *self = search->self;
    pool_outcome *outcome = search->outcome;
    pool_making *making = &search->making;
    pool_result found = POOL_NOTHING;
    for (int tries = 0; tries < 2 && found == POOL_NOTHING && !outcome->no_host_memory; tries++) {
        making->most = pool_most_to_be_had(self, outcome);
        making->allowed = making->allowed < making->most ? making->allowed : making->most;
        if (tries && !outcome->refused)
            break;
        found = move(self, search->need, making, search->may_wait, outcome, search->slot);
    }
    return without_host_memory(outcome, found);
}

/* After a failure waits for former places and tries again: without them there are more addresses. */
pool_result pool_move(pool_search *search)
{
    const pool_result found = try_to_move(search);
    return found == POOL_NOTHING && search->may_wait && pool_wait_for_all_formers(search->self) ? try_to_move(search)
                                                                                                : found;
}
