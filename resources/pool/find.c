/* The search for requests that no cache serves: its steps, in the order in which they are tried. */
#include "core/stack/neighbours.h"
#include "resources/pool/thread_cache.h"

/* Waits for a magazine. Its first extent serves the request; the rest goes to a known stream's cache. */
static pool_result find_in_depot(pool_search *search)
{
    pool *self = search->self;
    const pool_need *need = search->need;
    if (need->alignment > POOL_GRANULE)
        return POOL_NOTHING;
    pool_thread_cache *cache = need->stream->known ? search->local : NULL;
    const uint32_t first = pool_depot_take(self, cache, pool_granules(need->bytes));
    if (!first)
        return POOL_NOTHING;
    const bool waited = pool_wait_for_extent(self, need, first, NULL);
    if (cache)
        pool_stream_cache_fill(self, cache, waited ? need->stream->timeline : NULL);
    if (!waited)
        return POOL_NOTHING;
    *search->slot = first;
    return POOL_FOUND;
}

/* Frees what the thread caches for the stream, and searches again. */
static pool_result find_in_cache(pool_search *search)
{
    const pool_need *need = search->need;
    if (need->side == POOL_SMALL && pool_lets_threads_keep(search->self))
        return POOL_NOTHING;
    return pool_stream_cache_give(search->self, search->local, need->stream->timeline) ? pool_find_own(search)
                                                                                       : POOL_NOTHING;
}

/* Empties all caches, then searches the stream's own and complete memory, also neighbours together; no poll. */
static pool_result find_own_run(pool_search *search)
{
    pool *self = search->self;
    if (!search->may_wait && search->need->side == POOL_SMALL && pool_lets_threads_keep(self))
        return POOL_NOTHING;
    pool_thread_caches_flush(self);
    if (self->takes_finished) {
        strata_spin_take(&self->lock);
        pool_heap_process_completed(&self->heap);
        strata_spin_release(&self->lock);
    }
    pool_result found = pool_find_own(search);
    if (found == POOL_NOTHING) {
        strata_spin_take(&self->lock);
        found = pool_take_run(self, search->need, search->need->stream->timeline->number, search->slot);
        strata_spin_release(&self->lock);
    }
    return found;
}

/* ---- the table ---- */

typedef enum step_lock {
    SHORT, /* lock, for moments */
    MAP,   /* map_lock; in the last round oom_lock too */
    NONE,  /* calls layers below */
} step_lock;

enum {
    REMAPPABLE = 1, /* if the source's memory can be moved, */
    FIXED = 2,      /* or cannot; */
    PROGRESS = 4,   /* if memory found to be complete is reused, */
    WAITS = 8,      /* or memory behind a wait */
    ON_HOST = 16,   /* waits on the host in the last round, before a refusal */
    PART = 32,      /* for a block that may share a chunk, */
    WHOLE = 64,     /* or has one */
};

static const struct pool_step {
    const char *name;
    pool_result (*take)(pool_search *search);
    step_lock lock;
    unsigned needs;
} steps[] = {
    {"free memory of the stream, or complete", pool_find_first, SHORT, 0},
    {"a magazine, behind one wait for all of it", find_in_depot, SHORT, WAITS},
    {"what the thread keeps for the stream", find_in_cache, SHORT, 0},
    {"what all threads keep, with neighbours joined", find_own_run, MAP, 0},
    {"new memory, where polls are costly", pool_grow_ahead, MAP, REMAPPABLE | PROGRESS | PART},
    {"what a poll finds complete", pool_find_finished, MAP, PROGRESS},
    {"memory of other streams, behind a wait or followed", pool_find_others, MAP, 0},
    {"new memory, as much as is allowed", pool_grow, MAP, REMAPPABLE | PART},
    {"free memory, moved", pool_move, MAP, REMAPPABLE | PART | ON_HOST},
    {"a chunk for the block alone", pool_make_contiguous, MAP, WHOLE | ON_HOST},
    {"memory of the layer below", pool_find_fixed, NONE, FIXED | ON_HOST},
};

enum { STEPS = sizeof steps / sizeof steps[0], MOST_TRIES = 100 };

static bool applies(const pool_search *search, const struct pool_step *step)
{
    const pool *self = search->self;
    const bool remappable = self->store.source->remappable, whole = search->need->side == POOL_CONTIGUOUS;
    return !((step->needs & REMAPPABLE && !remappable) || (step->needs & FIXED && remappable) ||
             (step->needs & PART && whole) || (step->needs & WHOLE && !whole) ||
             (step->needs & PROGRESS && !self->takes_finished) || (step->needs & WAITS && !self->waits));
}

static pool_result take_steps(pool_search *search, step_lock lock)
{
    pool_result found = POOL_NOTHING;
    for (size_t i = 0; i < STEPS && found == POOL_NOTHING && !search->outcome->initial; i++)
        if (steps[i].lock == lock && applies(search, &steps[i]))
            found = steps[i].take(search);
    return found;
}

static pool_result search_locked(pool_search *search)
{
    pool *self = search->self;
    search->made = atomic_load_explicit(&self->counts.chunks_made, memory_order_relaxed);
    strata_lock_take(&self->map_lock);
    search->outcome->initial = false;
    pool_result found = take_steps(search, MAP);
    if (found == POOL_FOUND)
        pool_record_peak(self, search->need);
    strata_lock_release(&self->map_lock);
    return found;
}

/* Whether memory or addresses of that side may serve what the request's own cannot. */
static bool other_side_may_serve(pool *self, pool_side side, const pool_need *need)
{
    strata_spin_take(&self->lock);
    const bool may = pool_mapped_bytes(&self->heap, side) != 0 ||
                     pool_heap_largest_hole(&self->heap, need->side) < pool_room_for(need);
    strata_spin_release(&self->lock);
    return may;
}

/* A contiguous block has no other side. */
static pool_side other_side(pool_side side)
{
    return side == POOL_CONTIGUOUS ? side : side == POOL_SMALL ? POOL_LARGE : POOL_SMALL;
}

static pool_result search_other_side(const pool_search *search)
{
    const pool_outcome *outcome = search->outcome;
    pool_need need = *search->need;
    pool_search there = *search;
    need.side = other_side(need.side);
    there.need = &need;
    if (outcome->result != CUDA_ERROR_OUT_OF_MEMORY || outcome->initial || need.side == POOL_CONTIGUOUS ||
        !other_side_may_serve(search->self, need.side, search->need))
        return POOL_NOTHING;
    return search_locked(&there);
}

/* Takes the steps under map_lock, then those that call layers below. */
static pool_result search_once(pool_search *search)
{
    const pool_result found = search_locked(search);
    return found == POOL_NOTHING ? take_steps(search, NONE) : found;
}

/* Takes oom_lock: one thread at a time, so that none is refused memory that another is about to free. If other threads
 * take memory mapped for the request, tries again. */
static pool_result search_remappable_waiting(pool_search *search)
{
    pool_result found;
    unsigned tries = 0;
    strata_lock_take(&search->self->oom_lock);
    do {
        search->outcome->result = CUDA_ERROR_OUT_OF_MEMORY;
        found = search_locked(search);
        if (found == POOL_NOTHING)
            found = search_other_side(search);
    } while (found == POOL_NOTHING && search->outcome->result == CUDA_SUCCESS && ++tries < MOST_TRIES);
    strata_lock_release(&search->self->oom_lock);
    return found;
}

static pool_result search_waiting(pool_search *search)
{
    search->may_wait = true;
    return search->self->store.source->remappable ? search_remappable_waiting(search) : search_once(search);
}

/* Whether other stacks may be asked for memory. A layer below asks them itself. */
static bool may_ask_others(const pool_search *search)
{
    const pool *self = search->self;
    const pool_outcome *outcome = search->outcome;
    return (outcome->refused || outcome->initial) && !self->resource.upstream && !self->deterministic;
}

/* Searches again while other stacks give memory back that the device has refused. */
static pool_result search_in_neighbours(pool_search *search, pool_result (*again)(pool_search *search))
{
    pool *self = search->self;
    strata_reclaim reclaim = {.device = self->device,
                              .owner = &self->resource,
                              .bytes = search->outcome->initial ? pool_initial_size(self) : pool_room_for(search->need),
                              .may_wait = search->may_wait};
    pool_result found = POOL_NOTHING;
    while (found == POOL_NOTHING && may_ask_others(search) && strata_reclaim_try(&reclaim))
        found = again(search);
    return found;
}

/* Searches the pool's memory, then asks other stacks for free memory, then searches the other side, then waits on the
 * host for the pool's memory and for other stacks'. */
static pool_result search_all(pool_search *search)
{
    search->limited = *search->need;
    search->limited.budget_limit = pool_limit_by_budgets(search->self, search->need);
    search->need = &search->limited;
    pool_result found = search_once(search);
    if (found == POOL_NOTHING)
        found = search_in_neighbours(search, search_once);
    if (found == POOL_NOTHING && search->self->store.source->remappable)
        found = search_other_side(search);
    if (found == POOL_NOTHING)
        found = search_waiting(search);
    return found == POOL_NOTHING ? search_in_neighbours(search, search_waiting) : found;
}

/* ---- the first request ---- */

/* Begins the heap at the first request: before, the stack has no table. False without host memory. */
static bool begin(pool *self)
{
    strata_spin_take(&self->lock);
    bool started = atomic_load_explicit(&self->started, memory_order_relaxed);
    if (!started) {
        pool_heap_begin(&self->heap, strata_resource_table(&self->resource), self->resource.block_offset);
        self->heap.joins_complete = self->store.source->remappable && self->takes_finished && self->waits;
        started =
            !self->store.source->remappable ||
            pool_heap_enter_holes(&self->heap, self->store.base, pool_small_base(&self->store), self->store.bytes);
        atomic_store_explicit(&self->started, started, memory_order_release);
    }
    strata_spin_release(&self->lock);
    return started;
}

/* ---- the search ---- */

/* Clears an outcome. The errors' texts stay undefined, as their status is SUCCESS: to clear them would cost a tenth of
 * a miss. */
static void begin_outcome(const pool *self, pool_outcome *outcome)
{
    outcome->result = CUDA_ERROR_OUT_OF_MEMORY;
    outcome->call = self->store.source->make_call;
    outcome->own_only = !self->waits;
    outcome->no_host_memory = outcome->refused = outcome->initial = false;
    outcome->ceiling = 0;
    outcome->wait_error.status = outcome->below.status = STRATA_SUCCESS;
}

static strata_status find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot)
{
    if (__builtin_expect(!atomic_load_explicit(&self->started, memory_order_acquire), 0) && !begin(self))
        return strata_fail_host_memory("a pool");
    pool_thread_cache *local = strata_per_thread_self(&self->thread_caches, strata_thread_self());
    pool_outcome outcome;
    begin_outcome(self, &outcome);
    pool_search search = {.self = self,
                          .need = need,
                          .local = local,
                          .outcome = &outcome,
                          .slot = slot,
                          .again = search_locked,
                          .other_side = search_other_side};
    pool_result found = take_steps(&search, SHORT);
    if (found == POOL_NOTHING)
        found = search_all(&search);
    outcome.no_host_memory |= found == POOL_FAILED;
    return found == POOL_FOUND ? STRATA_SUCCESS : pool_refuse(self, request, &outcome);
}

strata_status pool_find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot)
{
    pool_decay_step_if_due(self);
    if (need->side == POOL_CONTIGUOUS && pool_lacks_initial(self, need))
        pool_reserve_initial(self);
    strata_status status = find(self, need, request, slot);
    if (status == STRATA_SUCCESS)
        pool_decay_record(self, *slot);
    return status;
}

/* The stream of a request that no stream of the program makes. False: it cannot be used now. */
static bool resolve_legacy(const pool *self, strata_stream_ref *stream)
{
    strata_call_scope scope;
    if (strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
        STRATA_SUCCESS)
        return false;
    const strata_status status = strata_stream_resolve(self->device, NULL, stream);
    strata_call_scope_leave(&scope);
    return status == STRATA_SUCCESS;
}

/* A request reserves the initial size; its extent becomes no block. */
void pool_reserve_initial(pool *self)
{
    uint32_t slot;
    strata_stream_ref stream;
    const pool_need need = {.stream = &stream,
                            .bytes = POOL_GRANULE,
                            .alignment = POOL_GRANULE,
                            .side = POOL_LARGE,
                            .budget_limit = UINT64_MAX};
    const strata_request request = {.bytes = POOL_GRANULE};
    strata_error_suppress_begin();
    if (resolve_legacy(self, &stream) && pool_find(self, &need, &request, &slot) == STRATA_SUCCESS)
        pool_give_range(self, slot, POOL_FREE);
    strata_error_suppress_end(false);
}
