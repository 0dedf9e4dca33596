/* Fixed chunks, of the layer below or cuMemAlloc. A request that no free memory serves is cut out of a new chunk. A
 * chunk is returned only when all of it is free and complete: at a trim, when no more memory can be had, and when a new
 * chunk would exceed the overhead limit.
 *
 * The layer below may call into this pool's stack, so no lock is held while it is asked. One thread at a time asks,
 * with a ticket: its chunk may serve all threads that need memory, and none is refused memory that another is about to
 * return. A thread that has waited long goes on without a ticket. */
#include "core/base/error.h"
#include "resources/pool/thread_cache.h"

enum {
    CHUNKS = 64,       /* before larger ones are made */
    MOST_SEARCHES = 8, /* after other threads' tickets */
    ROUNDS_TO_WAIT = 2000,
};

/* ---- tickets ---- */

typedef enum pool_ticket {
    TICKET_HELD,
    TICKET_NONE, /* go on: a nested call, or a long wait */
    TICKET_OVER, /* another thread had it: search again */
} pool_ticket;

static pool_ticket take_ticket(pool *self)
{
    struct strata_thread *own = strata_thread_self(), *holder = NULL;
    if (!own)
        return TICKET_NONE;
    if (atomic_compare_exchange_strong_explicit(&self->ticket, &holder, own, memory_order_acquire,
                                                memory_order_relaxed))
        return TICKET_HELD;
    if (holder == own)
        return TICKET_NONE;
    for (unsigned spins = 0; spins < ROUNDS_TO_WAIT;) {
        if (atomic_load_explicit(&self->ticket, memory_order_acquire) != holder)
            return TICKET_OVER;
        strata_backoff(&spins);
    }
    return TICKET_NONE;
}

static void release_ticket(pool *self, pool_ticket ticket)
{
    if (ticket == TICKET_HELD)
        atomic_store_explicit(&self->ticket, NULL, memory_order_release);
}

/* ---- returning chunks ---- */

/* Takes a chunk that can be returned. *slot is its memory, 0 if it is useless. */
static bool take_whole(pool *self, uint32_t number, bool may_wait, pool_chunk *chunk, uint32_t *slot)
{
    *slot = 0;
    strata_lock_take(&self->map_lock);
    *chunk = number < self->store.chunk_count ? self->store.chunks[number] : (pool_chunk){0};
    bool complete, taken = pool_chunk_bytes(chunk) && !chunk->leaving && !chunk->held;
    if (taken && !chunk->useless) {
        strata_spin_take(&self->lock);
        if (pool_chunk_is_free(self, chunk, &complete) && (complete || may_wait))
            *slot = pool_heap_take_range(&self->heap, chunk->address, pool_chunk_bytes(chunk));
        if (*slot)
            pool_extent_at(&self->heap, *slot)->state = POOL_AWAITED;
        strata_spin_release(&self->lock);
        taken = *slot != 0;
    }
    if (taken)
        self->store.chunks[number].leaving = true;
    strata_lock_release(&self->map_lock);
    return taken;
}

/* Makes a taken chunk memory again; without host memory at the next try. */
static void put_back(pool *self, uint32_t number, uint32_t slot)
{
    strata_lock_take(&self->map_lock);
    pool_chunk *chunk = &self->store.chunks[number];
    chunk->leaving = false;
    strata_spin_take(&self->lock);
    if (!slot && !chunk->useless)
        slot = pool_heap_enter(&self->heap, chunk->address, pool_chunk_bytes(chunk));
    if (slot)
        pool_heap_give(&self->heap, slot, POOL_FREE);
    else
        chunk->useless = true;
    strata_spin_release(&self->lock);
    strata_lock_release(&self->map_lock);
}

/* Waits for a taken chunk, which then is in no extent. After a failure it still is in *slot. */
static strata_status wait_for_chunk(pool *self, uint32_t *slot)
{
    const strata_status status = strata_uses_visit(pool_entry(&self->heap, *slot), strata_point_wait, NULL);
    strata_spin_take(&self->lock);
    pool_extent_at(&self->heap, *slot)->state = POOL_TAKEN;
    if (status == STRATA_SUCCESS) {
        pool_heap_leave(&self->heap, *slot);
        *slot = 0;
    }
    strata_spin_release(&self->lock);
    return status;
}

/* Returns a chunk if it is free and complete, or after a wait for it; *bytes is 0 if not. Errors, which leave it
 * unchanged: of the wait and the source. */
static strata_status give_back_chunk(pool *self, uint32_t number, bool may_wait, uint64_t *bytes)
{
    pool_chunk chunk;
    uint32_t slot;
    *bytes = 0;
    if (!take_whole(self, number, may_wait, &chunk, &slot))
        return STRATA_SUCCESS;
    strata_status status = slot ? wait_for_chunk(self, &slot) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = pool_chunk_store_return(&self->store, &chunk);
    if (status != STRATA_SUCCESS) {
        put_back(self, number, slot);
        return status;
    }
    *bytes = pool_chunk_bytes(&chunk);
    atomic_fetch_add_explicit(&self->counts.released, pool_chunk_bytes(&chunk), memory_order_relaxed);
    strata_lock_take(&self->map_lock);
    pool_chunk_store_forget(&self->store, number);
    pool_record_reserved(self);
    strata_lock_release(&self->map_lock);
    return STRATA_SUCCESS;
}

static uint32_t end_of_chunks(pool *self)
{
    strata_lock_take(&self->map_lock);
    const uint32_t end = self->store.chunk_count;
    strata_lock_release(&self->map_lock);
    return end;
}

/* Returns the bytes. */
static uint64_t give_back_chunks(pool *self, uint64_t enough, bool may_wait)
{
    uint64_t given = 0, bytes;
    for (uint32_t number = end_of_chunks(self); number-- > 1 && given < enough; given += bytes)
        give_back_chunk(self, number, may_wait, &bytes);
    if (given && self->store.source->drain)
        self->store.source->drain(&self->store);
    return given;
}

/* ---- getting chunks ---- */

static uint64_t least_for(const pool *self, const pool_need *need)
{
    return pool_in_granules(self, pool_room_for(need));
}

/* Larger with more memory. */
static uint64_t chunk_for(const pool *self, const pool_need *need)
{
    const uint64_t reserved = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    const uint64_t least = least_for(self, need);
    uint64_t size = self->store.granule;
    while (size < self->chunk_bytes && size * CHUNKS < reserved)
        size *= 2;
    size = size < self->chunk_bytes ? size : self->chunk_bytes;
    if (!reserved && size < pool_initial_size(self))
        size = pool_initial_size(self);
    return size > least ? size : least;
}

/* A number for a chunk of `bytes` within the limit, which count as requested; else 0. */
static uint32_t begin_request(pool *self, uint64_t bytes, pool_outcome *outcome)
{
    pool_chunk_store *store = &self->store;
    uint32_t number = 0;
    strata_lock_take(&self->map_lock);
    if (store->reserved + store->requested + bytes <= pool_most_reserved(self)) {
        number = pool_chunk_store_number(store);
        outcome->host = !number;
        store->requested += number ? bytes : 0;
    }
    strata_lock_release(&self->map_lock);
    return number;
}

/* Orders the request's stream behind the chunk's allocation. For a capturing stream, the host waits. */
static strata_status follow_chunk(const pool_need *need, const pool_chunk *chunk, bool alone)
{
    if (!chunk->below)
        return STRATA_SUCCESS;
    const strata_point ready = chunk->below->ready;
    strata_status status = alone ? STRATA_ERROR_UNSUPPORTED : strata_timeline_wait(need->stream, ready);
    return status == STRATA_SUCCESS ? status : strata_point_synchronize(ready);
}

/* Cuts the block out of a new chunk. 0 without host memory; the chunk may then be useless. map_lock is held. */
static uint32_t enter_chunk(pool *self, const pool_need *need, pool_chunk *chunk)
{
    strata_spin_take(&self->lock);
    uint32_t slot = pool_heap_enter(&self->heap, chunk->address, pool_chunk_bytes(chunk));
    if (slot && chunk->below && !pool_points_add(pool_entry(&self->heap, slot), chunk->below->ready)) {
        pool_heap_leave(&self->heap, slot);
        slot = 0;
    }
    if (slot)
        slot = pool_cut_out(self, slot, need);
    else
        chunk->useless = true;
    strata_spin_release(&self->lock);
    return slot;
}

static uint32_t record_chunk(pool *self, const pool_need *need, uint32_t number, const pool_chunk *chunk, bool usable)
{
    pool_chunk *recorded = &self->store.chunks[number];
    *recorded = *chunk;
    self->store.reserved += pool_chunk_bytes(chunk);
    recorded->useless = !usable;
    if (usable)
        atomic_fetch_add_explicit(&self->counts.chunks_made, 1, memory_order_relaxed);
    return usable ? enter_chunk(self, need, recorded) : 0;
}

static void give_back_unused(pool *self, uint32_t number)
{
    uint64_t bytes;
    strata_error_suppress_begin();
    give_back_chunk(self, number, true, &bytes);
    strata_error_suppress_end(false);
}

static strata_status request_chunk(pool *self, const pool_need *need, uint64_t bytes, pool_outcome *outcome,
                                   pool_chunk *chunk, bool *made)
{
    strata_error_suppress_begin();
    strata_status status = pool_chunk_store_request(&self->store, bytes, chunk);
    *made = status == STRATA_SUCCESS;
    if (*made)
        status = follow_chunk(need, chunk, outcome->alone);
    const strata_error *said = strata_error_suppressed();
    if (status != STRATA_SUCCESS)
        outcome->below = said->status == status ? *said : (strata_error){.status = status};
    strata_error_suppress_end(false);
    return status;
}

static pool_result take_chunk(pool *self, const pool_need *need, uint64_t bytes, pool_outcome *outcome, uint32_t *slot)
{
    outcome->below.status = STRATA_SUCCESS;
    const uint32_t number = begin_request(self, bytes, outcome);
    if (!number)
        return outcome->host ? POOL_FAILED : POOL_NOTHING;
    pool_chunk chunk;
    bool made;
    strata_status status = request_chunk(self, need, bytes, outcome, &chunk, &made);
    strata_lock_take(&self->map_lock);
    self->store.requested -= bytes;
    if (made && self->store.reserved + self->store.requested + pool_chunk_bytes(&chunk) > pool_most_reserved(self))
        chunk.units = pool_chunk_units(bytes); /* more than requested */
    *slot = made ? record_chunk(self, need, number, &chunk, status == STRATA_SUCCESS) : 0;
    const bool unused = made && self->store.chunks[number].useless;
    if (!made)
        pool_chunk_store_forget(&self->store, number);
    pool_record_reserved(self);
    strata_lock_release(&self->map_lock);
    if (unused)
        give_back_unused(self, number);
    if (*slot)
        return POOL_FOUND;
    return status == STRATA_SUCCESS ? POOL_FAILED : POOL_NOTHING;
}

/* Whether memory that is returned may help. */
static bool is_short(const pool_outcome *outcome)
{
    const strata_status status = outcome->below.status;
    return status == STRATA_SUCCESS || status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET;
}

/* What is over the limit; all, if the source refuses. */
static uint64_t missing_for(pool *self, const pool_need *need, const pool_outcome *outcome)
{
    if (outcome->below.status != STRATA_SUCCESS)
        return UINT64_MAX;
    strata_lock_take(&self->map_lock);
    const uint64_t after = self->store.reserved + self->store.requested + least_for(self, need);
    const uint64_t most = pool_most_reserved(self);
    strata_lock_release(&self->map_lock);
    return after > most ? after - most : 1;
}

/* Returns complete chunks, so that `bytes` more stay within the overhead limit. */
static void keep_within_overhead(pool *self, const pool_need *need, uint64_t bytes)
{
    strata_lock_take(&self->map_lock);
    uint64_t most = pool_with_overhead(pool_peak_with(self, need), self->overhead, self->store.granule);
    most = most > pool_initial_size(self) ? most : pool_initial_size(self);
    const uint64_t after = self->store.reserved + self->store.requested + bytes;
    strata_lock_release(&self->map_lock);
    if (after <= most)
        return;
    strata_error_suppress_begin();
    give_back_chunks(self, after - most, false);
    strata_error_suppress_end(false);
}

/* A chunk of the usual size, or just large enough; then after returning complete chunks, and after waiting for others.
 */
static pool_result get_chunk(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    const uint64_t least = least_for(self, need), size = chunk_for(self, need);
    keep_within_overhead(self, need, size);
    pool_result found = take_chunk(self, need, size, outcome, slot);
    outcome->initial = found == POOL_NOTHING && pool_lacks_initial(self, need);
    if (outcome->initial)
        return found;
    if (found == POOL_NOTHING && size > least && is_short(outcome))
        found = take_chunk(self, need, least, outcome, slot);
    for (int may_wait = 0; may_wait < 2 && found == POOL_NOTHING && is_short(outcome); may_wait++) {
        const uint64_t missing = missing_for(self, need, outcome);
        strata_error_suppress_begin();
        const uint64_t given = give_back_chunks(self, missing, may_wait != 0);
        strata_error_suppress_end(false);
        if (given)
            found = take_chunk(self, need, least, outcome, slot);
    }
    return found;
}

/* Searches again if a chunk was made since `made` was read. */
static pool_result find_rest(pool *self, const pool_need *need, uint64_t *made, pool_outcome *outcome, uint32_t *slot)
{
    const uint64_t now = atomic_load_explicit(&self->counts.chunks_made, memory_order_relaxed);
    if (*made == now)
        return POOL_NOTHING;
    *made = now;
    return pool_find_again(self, need, outcome, slot);
}

pool_result pool_find_fixed(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    pool_ticket ticket = TICKET_OVER;
    pool_result found = POOL_NOTHING;
    uint64_t made = 0;
    for (int i = 0; found == POOL_NOTHING && ticket == TICKET_OVER && i < MOST_SEARCHES; i++) {
        made = atomic_load_explicit(&self->counts.chunks_made, memory_order_relaxed);
        found = pool_find_again(self, need, outcome, slot);
        if (found == POOL_NOTHING)
            ticket = take_ticket(self);
    }
    if (found == POOL_NOTHING) /* another thread may have had the ticket */
        found = find_rest(self, need, &made, outcome, slot);
    if (found == POOL_NOTHING)
        found = get_chunk(self, need, outcome, slot);
    if (found == POOL_NOTHING) /* and what its chunk left */
        found = find_rest(self, need, &made, outcome, slot);
    release_ticket(self, ticket);
    if (found == POOL_FOUND) {
        strata_lock_take(&self->map_lock);
        pool_record_peak(self, need);
        strata_lock_release(&self->map_lock);
    }
    return found;
}

/* Until at most `keep` bytes are reserved; with `at_least`, as long as they stay, and without a wait. *bytes: returned.
 */
static strata_status return_chunks(pool *self, uint64_t keep, bool at_least, uint64_t *bytes)
{
    strata_status status = STRATA_SUCCESS;
    const pool_ticket ticket = take_ticket(self);
    const uint64_t before = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    strata_lock_release(&self->map_lock);
    if (before > keep && self->takes_finished)
        pool_poll(self);
    strata_error_suppress_begin();
    for (uint32_t number = end_of_chunks(self); status == STRATA_SUCCESS && number-- > 1;) {
        uint64_t given;
        strata_lock_take(&self->map_lock);
        const uint64_t reserved = self->store.reserved, size = pool_chunk_bytes(&self->store.chunks[number]);
        strata_lock_release(&self->map_lock);
        if (reserved > keep && (!at_least || reserved - keep >= size))
            status = give_back_chunk(self, number, !at_least, &given);
        status = status == STRATA_ERROR_STREAM_CAPTURE ? STRATA_SUCCESS : status;
    }
    if (status == STRATA_SUCCESS && self->store.source->drain)
        status = self->store.source->drain(&self->store);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    release_ticket(self, ticket);
    const uint64_t after = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    *bytes = before > after ? before - after : 0;
    return status;
}

strata_status pool_trim_fixed(pool *self, uint64_t keep, uint64_t *bytes)
{
    return return_chunks(self, keep, false, bytes);
}

strata_status pool_release_fixed(pool *self, uint64_t keep)
{
    uint64_t bytes;
    return return_chunks(self, keep, true, &bytes);
}
