/* Fixed chunks, of the layer below or cuMemAlloc. A chunk is returned only when wholly free and complete: at a trim,
 * when no more memory can be had, and when a new chunk would exceed the overhead limit.
 *
 * The layer below may call into this pool's stack: no lock is held while it is asked. One thread at a time asks, with a
 * ticket: its chunk may serve all that need memory, and none is refused memory that another is about to return. After a
 * long wait a thread goes on without a ticket. */
#include "core/base/error.h"
#include "resources/pool/policy.h"
#include "resources/pool/thread_cache.h"

enum {
    CHUNKS = 64,       /* before larger ones are made */
    MOST_SEARCHES = 8, /* after other threads' tickets */
    ROUNDS_TO_WAIT = 2000,
};

/* ---- tickets ---- */

typedef enum pool_ticket {
    TICKET_HELD,
    TICKET_NONE, /* goes on without: nested call, or long wait */
    TICKET_OVER, /* another thread's is over: search again */
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

/* Takes a chunk that can be returned. *slot: its memory; 0: it is useless, in no extent. */
static bool take_whole(pool *self, const pool_release_terms *how, uint32_t number, pool_chunk *chunk, uint32_t *slot)
{
    *slot = 0;
    if (!how->hurried)
        strata_lock_take(&self->map_lock);
    else if (!strata_lock_try(&self->map_lock))
        return false;
    *chunk = number < self->store.chunk_count ? self->store.chunks[number] : (pool_chunk){0};
    bool taken = pool_chunk_bytes(chunk) && !chunk->leaving && !chunk->held &&
                 pool_chunk_store_spares(&self->store, number, how->keep, how->least);
    if (taken && !chunk->useless) {
        *slot = pool_take_free_chunk(self, chunk, how->may_wait, POOL_AWAITED);
        taken = *slot != 0;
    }
    if (taken)
        pool_chunk_store_set_leaving(&self->store, number, true);
    strata_lock_release(&self->map_lock);
    return taken;
}

/* Makes a chunk that was not returned memory again; without host memory, the next try does. */
static void put_back(pool *self, uint32_t number, uint32_t slot)
{
    strata_lock_take(&self->map_lock);
    pool_chunk *chunk = &self->store.chunks[number];
    pool_chunk_store_set_leaving(&self->store, number, false);
    strata_spin_take(&self->lock);
    if (!slot && !chunk->useless)
        slot = pool_heap_enter(&self->heap, (pool_side)chunk->side, chunk->address, pool_chunk_bytes(chunk));
    if (slot)
        pool_heap_give(&self->heap, slot, POOL_FREE);
    else
        chunk->useless = true;
    strata_spin_release(&self->lock);
    strata_lock_release(&self->map_lock);
}

/* Waits for a taken chunk's work. The chunk is in no extent then; after a failure it still is in *slot. */
static strata_status wait_for_chunk(pool *self, uint32_t *slot)
{
    const strata_status status = strata_uses_visit(pool_entry(&self->heap, *slot), strata_point_wait, self->device);
    strata_spin_take(&self->lock);
    pool_extent_at(&self->heap, *slot)->state = POOL_TAKEN;
    if (status == STRATA_SUCCESS) {
        pool_heap_leave(&self->heap, *slot);
        *slot = 0;
    }
    strata_spin_release(&self->lock);
    return status;
}

static strata_status give_back_chunk(pool *self, const pool_release_terms *how, uint32_t number)
{
    pool_chunk chunk;
    uint32_t slot;
    if (!take_whole(self, how, number, &chunk, &slot))
        return STRATA_SUCCESS;
    strata_status status = slot ? wait_for_chunk(self, &slot) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = pool_chunk_store_return(&self->store, &chunk);
    if (status != STRATA_SUCCESS) {
        put_back(self, number, slot);
        return status;
    }
    atomic_fetch_add_explicit(&self->counts.released, pool_chunk_bytes(&chunk), memory_order_relaxed);
    strata_lock_take(&self->map_lock);
    pool_chunk_store_forget(&self->store, number);
    pool_record_reserved(self);
    strata_lock_release(&self->map_lock);
    return STRATA_SUCCESS;
}

/* Returns chunks until at least `enough` bytes have gone. What cannot go stays. False: nothing was returned. */
static bool give_back_chunks(pool *self, uint64_t enough, bool may_wait)
{
    const pool_release_terms how = {.may_wait = may_wait};
    const uint64_t before = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    uint64_t given = 0;
    strata_error_suppress_begin();
    for (uint32_t number = pool_end_of_chunks(self); number-- > 1 && given < enough;) {
        give_back_chunk(self, &how, number);
        const uint64_t after = atomic_load_explicit(&self->reserved, memory_order_relaxed);
        given = before > after ? before - after : 0;
    }
    if (given && self->store.source->drain)
        self->store.source->drain(&self->store);
    strata_error_suppress_end(false);
    return given != 0;
}

/* ---- getting chunks ---- */

static uint64_t least_for(const pool *self, const pool_need *need)
{
    return pool_in_granules(self, pool_room_for(need));
}

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

/* By how much `bytes` more would exceed `most`. map_lock is held. */
static uint64_t over(const pool *self, uint64_t bytes, uint64_t most)
{
    const uint64_t after = self->store.reserved + self->store.requested + bytes;
    return after > most ? after - most : 0;
}

/* Returns a number for a chunk of `bytes`, which then count as requested; 0 beyond the limit, or without host memory.
 */
static uint32_t begin_request(pool *self, uint64_t bytes, pool_outcome *outcome)
{
    pool_chunk_store *store = &self->store;
    uint32_t number = 0;
    strata_lock_take(&self->map_lock);
    if (!over(self, bytes, pool_most_reserved(self))) {
        number = pool_chunk_store_number(store);
        outcome->no_host_memory = !number;
        store->requested += number ? bytes : 0;
    }
    strata_lock_release(&self->map_lock);
    return number;
}

/* Orders the request's stream behind the chunk's allocation; for a capturing one, the host waits. */
static strata_status follow_chunk(const pool_need *need, const pool_chunk *chunk, bool own_only)
{
    if (!chunk->below)
        return STRATA_SUCCESS;
    const strata_point ready = chunk->below->ready;
    strata_status status = own_only ? STRATA_ERROR_UNSUPPORTED : strata_timeline_wait(need->stream, ready);
    return status == STRATA_SUCCESS ? status : strata_point_synchronize(ready);
}

/* Makes the chunk an extent and cuts the block out. 0 without host memory; the chunk may then be useless. map_lock is
 * held. */
static uint32_t enter_chunk(pool *self, const pool_need *need, pool_chunk *chunk)
{
    strata_spin_take(&self->lock);
    chunk->side = need->side == POOL_SMALL;
    uint32_t slot = pool_heap_enter(&self->heap, need->side, chunk->address, pool_chunk_bytes(chunk));
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

static strata_status request_chunk(pool *self, const pool_need *need, uint64_t bytes, pool_outcome *outcome,
                                   pool_chunk *chunk, bool *made)
{
    strata_error_suppress_begin();
    *chunk = (pool_chunk){.units = pool_chunk_units(bytes)};
    strata_status status = strata_check_device_now(self->device);
    if (status == STRATA_SUCCESS)
        status = self->store.source->make(&self->store, bytes, chunk);
    *made = status == STRATA_SUCCESS;
    if (*made)
        status = follow_chunk(need, chunk, outcome->own_only);
    const strata_error *said = strata_error_suppressed();
    if (status != STRATA_SUCCESS)
        outcome->below = said->status == status ? *said : (strata_error){.status = status};
    outcome->refused = !*made && !self->resource.upstream && status == STRATA_ERROR_OUT_OF_MEMORY;
    strata_error_suppress_end(false);
    return status;
}

static pool_result take_chunk(pool *self, const pool_need *need, uint64_t bytes, pool_outcome *outcome, uint32_t *slot)
{
    outcome->below.status = STRATA_SUCCESS;
    outcome->refused = false;
    const uint32_t number = begin_request(self, bytes, outcome);
    if (!number)
        return outcome->no_host_memory ? POOL_FAILED : POOL_NOTHING;
    pool_chunk chunk;
    bool made;
    strata_status status = request_chunk(self, need, bytes, outcome, &chunk, &made);
    strata_lock_take(&self->map_lock);
    self->store.requested -= bytes;
    if (made && over(self, pool_chunk_bytes(&chunk), pool_most_reserved(self)))
        chunk.units = pool_chunk_units(bytes); /* more than requested */
    *slot = made ? record_chunk(self, need, number, &chunk, status == STRATA_SUCCESS) : 0;
    const bool unused = made && self->store.chunks[number].useless;
    if (!made)
        pool_chunk_store_forget(&self->store, number);
    pool_record_reserved(self);
    strata_lock_release(&self->map_lock);
    strata_error_suppress_begin();
    if (unused)
        give_back_chunk(self, &(pool_release_terms){.may_wait = true}, number);
    strata_error_suppress_end(false);
    if (*slot)
        return POOL_FOUND;
    return status == STRATA_SUCCESS ? POOL_FAILED : POOL_NOTHING;
}

/* Whether the chunk was refused for want of memory, so that returned memory may help. */
static bool is_short(const pool_outcome *outcome)
{
    const strata_status status = outcome->below.status;
    return status == STRATA_SUCCESS || status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET;
}

/* Returns complete chunks until `bytes` more are within the overhead limit. */
static void keep_within_overhead(pool *self, const pool_need *need, uint64_t bytes)
{
    strata_lock_take(&self->map_lock);
    const uint64_t more = over(self, bytes, pool_allowed(self, need));
    strata_lock_release(&self->map_lock);
    if (more)
        give_back_chunks(self, more, false);
}

/* Takes a chunk after returning others: as much as is over the limit, or all if the source refuses. */
static pool_result take_chunk_instead(pool_search *search, bool may_wait)
{
    pool *self = search->self;
    const uint64_t least = least_for(self, search->need);
    strata_lock_take(&self->map_lock);
    const uint64_t more = over(self, least, pool_most_reserved(self));
    strata_lock_release(&self->map_lock);
    const uint64_t enough = search->outcome->below.status != STRATA_SUCCESS ? UINT64_MAX : more ? more : 1;
    return give_back_chunks(self, enough, may_wait)
               ? take_chunk(self, search->need, least, search->outcome, search->slot)
               : POOL_NOTHING;
}

/* Takes a chunk of the usual size, or just large enough; then after returning complete chunks, and in memory of the
 * other side. */
static pool_result get_chunk(pool_search *search)
{
    pool *self = search->self;
    const pool_need *need = search->need;
    pool_outcome *outcome = search->outcome;
    const uint64_t least = least_for(self, need), size = chunk_for(self, need);
    keep_within_overhead(self, need, size);
    pool_result found = take_chunk(self, need, size, outcome, search->slot);
    outcome->initial = found == POOL_NOTHING && pool_lacks_initial(self, need);
    if (outcome->initial)
        return found;
    if (found == POOL_NOTHING && size > least && is_short(outcome))
        found = take_chunk(self, need, least, outcome, search->slot);
    if (found == POOL_NOTHING && is_short(outcome))
        found = take_chunk_instead(search, false);
    if (found == POOL_NOTHING && is_short(outcome))
        found = search->other_side(search);
    return found;
}

/* Tries once more if the device has refused the chunk; then after waiting for other chunks and returning them. */
static pool_result get_chunk_waiting(pool_search *search)
{
    pool *self = search->self;
    pool_outcome *outcome = search->outcome;
    outcome->initial = pool_lacks_initial(self, search->need);
    if (outcome->initial)
        return outcome->refused ? get_chunk(search) : POOL_NOTHING;
    pool_result found = POOL_NOTHING;
    if (outcome->refused)
        found = take_chunk(self, search->need, least_for(self, search->need), outcome, search->slot);
    return found == POOL_NOTHING && is_short(outcome) ? take_chunk_instead(search, true) : found;
}

/* Searches again, if a chunk was made since the last search. */
static pool_result find_rest(pool_search *search)
{
    const uint64_t now = atomic_load_explicit(&search->self->counts.chunks_made, memory_order_relaxed);
    return search->made == now ? POOL_NOTHING : search->again(search);
}

/* The steps before have found nothing. */
pool_result pool_find_fixed(pool_search *search)
{
    pool *self = search->self;
    pool_result found = POOL_NOTHING;
    pool_ticket ticket = take_ticket(self);
    for (int i = 0; found == POOL_NOTHING && ticket == TICKET_OVER && i < MOST_SEARCHES; i++) {
        found = search->again(search);
        if (found == POOL_NOTHING)
            ticket = take_ticket(self);
    }
    if (found == POOL_NOTHING) /* another thread may have had the ticket */
        found = find_rest(search);
    if (found == POOL_NOTHING) {
        found = search->may_wait ? get_chunk_waiting(search) : get_chunk(search);
        strata_lock_take(&self->map_lock);
        if (found == POOL_FOUND)
            pool_record_peak(self, search->need);
        strata_lock_release(&self->map_lock);
    }
    if (found == POOL_NOTHING) /* what its chunk left */
        found = find_rest(search);
    release_ticket(self, ticket);
    return found;
}

static strata_status give_back(pool *self, const pool_release_terms *how, uint64_t *bytes)
{
    const pool_ticket ticket = take_ticket(self);
    const strata_status status = pool_give_back_chunks(self, how, bytes);
    release_ticket(self, ticket);
    return status;
}

const pool_kind pool_kind_fixed = {.give_back = give_back, .give_back_chunk = give_back_chunk};
