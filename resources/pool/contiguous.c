/* Blocks with a chunk each. Their extents are on a side of their own, POOL_CONTIGUOUS: each is a whole chunk and a
 * range of its own, so that it is neither cut nor joined. A freed one serves requests of its size, or is returned. */
#include "resources/pool/policy.h"
#include "resources/pool/remap.h"

/* Returns free chunks of any kind until `bytes` more are within `most`, or none is left. They count as moved. */
static void make_room(pool *self, uint64_t bytes, uint64_t most, bool may_wait)
{
    pool_chunk_list gone = {0};
    const pool_remap_terms any = {.room = UINT64_MAX, .may_wait = may_wait};
    while (self->store.reserved + bytes > most && pool_chunk_list_give_back(self, &any, &gone))
        continue;
    pool_policy_record_moves(self, gone.moved);
}

static bool can_be_within(pool *self, uint64_t bytes, uint64_t most, bool may_wait)
{
    const pool_remap_terms any = {.returned = true, .may_wait = may_wait};
    strata_spin_take(&self->lock);
    const uint64_t free = pool_remappable_bytes(self, &any, 0, UINT64_MAX, UINT64_MAX);
    strata_spin_release(&self->lock);
    return bytes <= most && self->store.reserved - free <= most - bytes;
}

/* Makes the chunk an extent. 0 without host memory: the chunk is returned, now or later. */
static uint32_t enter(pool *self, uint32_t number)
{
    pool_chunk *chunk = &self->store.chunks[number];
    strata_spin_take(&self->lock);
    const uint32_t slot = pool_heap_enter(&self->heap, POOL_CONTIGUOUS, chunk->address, pool_chunk_bytes(chunk));
    chunk->useless = slot == 0;
    strata_spin_release(&self->lock);
    if (!slot)
        pool_chunk_list_drop(self, &number, 1);
    return slot;
}

static pool_result make(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    uint32_t number;
    outcome->call = "cuMemCreate";
    outcome->result = pool_chunk_store_make_contiguous(&self->store, need->bytes, need->alignment, &number,
                                                       &outcome->no_host_memory, &outcome->call);
    if (outcome->result == CUDA_ERROR_OUT_OF_MEMORY && !outcome->no_host_memory)
        pool_record_refusal(self, need->bytes, outcome);
    if (outcome->result != CUDA_SUCCESS)
        return POOL_NOTHING;
    *slot = enter(self, number);
    outcome->no_host_memory |= !*slot;
    atomic_fetch_add_explicit(&self->counts.chunks_made, *slot != 0, memory_order_relaxed);
    return *slot ? POOL_FOUND : POOL_NOTHING;
}

/* Makes the chunk, in exchange for free memory beyond what is allowed. Nothing is returned for a request that cannot be
 * served. */
static pool_result exchange(pool_search *search)
{
    pool *self = search->self;
    pool_outcome *outcome = search->outcome;
    const uint64_t bytes = search->need->bytes, most = pool_most_to_be_had(self, outcome);
    const uint64_t allowed = search->making.allowed < most ? search->making.allowed : most;
    outcome->result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!can_be_within(self, bytes, most, search->may_wait))
        return POOL_NOTHING;
    make_room(self, bytes, allowed, false);
    make_room(self, bytes, most, search->may_wait);
    const pool_result found =
        self->store.reserved + bytes <= most ? make(self, search->need, outcome, search->slot) : POOL_NOTHING;
    pool_record_reserved(self);
    return found;
}

pool_result pool_make_contiguous(pool_search *search)
{
    pool *self = search->self;
    pool_outcome *outcome = search->outcome;
    strata_call_scope scope;
    if ((outcome->initial = pool_lacks_initial(self, search->need)))
        return POOL_NOTHING;
    outcome->refused = false;
    if (self->takes_finished) /* what is complete can be exchanged */
        pool_poll_own(self, search->need);
    pool_unmap_formers(self);
    search->making.allowed = pool_allowed(self, search->need);
    if (!pool_enter_scope(self, &scope, outcome))
        return POOL_NOTHING;
    pool_result found = exchange(search);
    if (found == POOL_NOTHING && outcome->refused) /* with what the device has said to have */
        found = exchange(search);
    if (found == POOL_NOTHING && search->may_wait && pool_wait_for_all_formers(self)) /* whose chunks can be returned */
        found = exchange(search);
    strata_call_scope_leave(&scope);
    return found == POOL_NOTHING && outcome->no_host_memory ? POOL_FAILED : found;
}
