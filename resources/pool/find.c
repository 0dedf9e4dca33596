/* Requests that no cache serves. The steps: the stream's own and complete memory; memory that a poll finds complete;
 * memory that can be waited for; new or remapped memory (grow.c), which comes earlier where polling is costly. */
#include "core/base/error.h"
#include "resources/owners/out_of_memory.h"
#include "resources/pool/thread_cache.h"

/* Where memory is scarce, requests fail for want of whole granules, and partly used ones add up. A request that would
 * touch some gets the ends of two free extents and remapped memory between them, if that touches fewer. */
static pool_result find_across_holes(pool *self, const pool_need *need, uint32_t *slot)
{
    if (need->bytes < self->store.granule || !self->store.source->remappable)
        return POOL_NOTHING;
    const uint64_t bytes = pool_room_for(need);
    strata_spin_take(&self->lock);
    uint32_t fit = pool_is_scarce(self) ? pool_heap_find(&self->heap, need->stream->timeline->number, bytes) : 0;
    fit = pool_least_fragmenting(self, fit, bytes);
    const pool_touched touched =
        fit ? pool_pages_touched(self, pool_entry(&self->heap, fit), bytes) : (pool_touched){0};
    strata_spin_release(&self->lock);
    const uint64_t least = touched.at_end < touched.at_start ? touched.at_end : touched.at_start;
    return least ? pool_remap_least_fragmenting(self, need, least, slot) : POOL_NOTHING;
}

/* Waits for a magazine of that size. Its first extent serves the request; the rest goes to a known stream's cache. */
static pool_result find_in_depot(pool *self, const pool_need *need, pool_thread_cache *local, uint32_t *slot)
{
    if (need->alignment > POOL_GRANULE || !self->waits)
        return POOL_NOTHING;
    pool_thread_cache *cache = need->stream->known ? local : NULL;
    const uint32_t first = pool_depot_take(self, cache, pool_granules(need->bytes));
    if (!first)
        return POOL_NOTHING;
    const bool waited = pool_wait_for_extent(self, need, first, NULL);
    if (cache)
        pool_stream_cache_fill(self, cache, waited ? need->stream->timeline : NULL);
    if (!waited)
        return POOL_NOTHING;
    *slot = first;
    return POOL_FOUND;
}

/* Own and complete memory, neighbours joined; no poll. */
static pool_result find_own_run(pool *self, const pool_need *need, uint32_t *slot)
{
    if (self->takes_finished) {
        strata_spin_take(&self->lock);
        pool_heap_process_completed(&self->heap);
        strata_spin_release(&self->lock);
    }
    pool_result found = pool_find_own(self, need, slot);
    if (found == POOL_NOTHING) {
        strata_spin_take(&self->lock);
        found = pool_take_run(self, need, need->stream->timeline->number, slot);
        strata_spin_release(&self->lock);
    }
    return found;
}

/* At first, the addresses for mapping are one hole. */
static bool begin_heap(pool *self)
{
    if (!self->store.source->remappable)
        return true;
    const uint32_t slot = pool_heap_enter(&self->heap, self->store.base, self->store.bytes);
    if (!slot)
        return false;
    pool_heap_give(&self->heap, slot, POOL_HOLE);
    return true;
}

/* At the first request, when the table exists. */
static bool begin(pool *self)
{
    strata_spin_take(&self->lock);
    bool started = atomic_load_explicit(&self->started, memory_order_relaxed);
    if (!started) {
        self->heap.table = strata_resource_table(&self->resource);
        self->heap.offset = self->resource.block_offset;
        self->heap.joins_complete = self->store.source->remappable && self->takes_finished && self->waits;
        started = begin_heap(self);
        atomic_store_explicit(&self->started, started, memory_order_release);
    }
    strata_spin_release(&self->lock);
    return started;
}

enum { MOST_TRIES = 100 };

static pool_result find_under_map_lock(pool *self, const pool_need *need, bool may_wait, pool_outcome *outcome,
                                       uint32_t *slot)
{
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    pool_result found = find_own_run(self, need, slot);
    if (found == POOL_NOTHING)
        found = pool_grow_ahead(self, need, outcome, slot);
    if (found == POOL_NOTHING)
        found = pool_find_others(self, need, outcome, slot);
    if (found == POOL_NOTHING)
        found = pool_grow_or_remap(self, need, may_wait, outcome, slot);
    if (found == POOL_FOUND)
        pool_record_peak(self, need);
    strata_lock_release(&self->map_lock);
    return found;
}

/* One thread at a time, so that none is refused memory that another is about to free. Other threads may take memory
 * that was mapped for the request: then it tries again. */
static pool_result find_under_oom_lock(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    pool_result found;
    unsigned tries = 0;
    strata_lock_take(&self->oom_lock);
    do {
        outcome->result = CUDA_ERROR_OUT_OF_MEMORY;
        found = find_under_map_lock(self, need, true, outcome, slot);
    } while (found == POOL_NOTHING && outcome->result == CUDA_SUCCESS && ++tries < MOST_TRIES);
    strata_lock_release(&self->oom_lock);
    return found;
}

static pool_result find_mapped(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    const pool_result found = find_under_map_lock(self, need, false, outcome, slot);
    return found == POOL_NOTHING ? find_under_oom_lock(self, need, outcome, slot) : found;
}

static strata_status refuse_initial(pool *self, const strata_request *request, const pool_outcome *outcome)
{
    const strata_error *below = &outcome->below;
    const bool from_below = below->status != STRATA_SUCCESS;
    if (from_below && below->status != STRATA_ERROR_OUT_OF_MEMORY && below->status != STRATA_ERROR_OUT_OF_BUDGET)
        return strata_error_raise_again(below);
    if (!from_below && outcome->result != CUDA_SUCCESS && outcome->result != CUDA_ERROR_OUT_OF_MEMORY)
        return strata_fail_allocation(&self->resource, request, outcome->result, outcome->call);
    const size_t device_free = strata_device_free_bytes(self->device);
    strata_error *error = strata_error_begin(from_below ? below->status : STRATA_ERROR_OUT_OF_MEMORY);
    if (from_below)
        *error = *below;
    error->requested = request->bytes;
    error->tag = request->tag;
    error->device_free = device_free;
    return strata_error_raise(error,
                              "pool: initial_size is %llu bytes, which cannot be had, and before it is no request is "
                              "served: on device %d %zu bytes are free of %zu. Choose a smaller one%s%.260s",
                              (unsigned long long)self->initial_bytes, self->device->ordinal, device_free,
                              self->device->info.total_bytes, from_below ? ". Below: " : "",
                              from_below ? below->message : "");
}

static strata_status refuse_fixed(pool *self, const strata_request *request, const strata_error *below)
{
    if (below->status != STRATA_ERROR_OUT_OF_MEMORY && below->status != STRATA_ERROR_OUT_OF_BUDGET)
        return strata_error_raise_again(below);
    if (below->driver_code == CUDA_ERROR_OUT_OF_MEMORY)
        return strata_fail_allocation_in_steps(&self->resource, request, below->driver_code, below->driver_call,
                                               self->store.granule);
    strata_error *error = strata_error_begin(below->status);
    *error = *below;
    error->requested = request->bytes;
    error->tag = request->tag;
    return strata_error_raise(error, "pool: no room for a block of %zu bytes (tag \"%.60s\"), nor below: %.330s",
                              request->bytes, strata_tag_name(request->tag), below->message);
}

static strata_status find_with_all_means(pool *self, const pool_need *need, const strata_request *request,
                                         uint32_t *slot)
{
    const pool_chunk_source *source = self->store.source;
    pool_outcome outcome = {.result = CUDA_ERROR_OUT_OF_MEMORY, .call = source->make_call, .alone = !self->waits};
    const pool_result found =
        source->remappable ? find_mapped(self, need, &outcome, slot) : pool_find_fixed(self, need, &outcome, slot);
    if (found == POOL_FOUND)
        return STRATA_SUCCESS;
    if (found == POOL_FAILED || outcome.host)
        return strata_fail_host_memory("a piece of a pool");
    if (outcome.wait_error.status != STRATA_SUCCESS)
        return strata_error_raise_again(&outcome.wait_error);
    if (outcome.initial)
        return refuse_initial(self, request, &outcome);
    if (outcome.below.status != STRATA_SUCCESS)
        return refuse_fixed(self, request, &outcome.below);
    const CUresult result = outcome.result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : outcome.result;
    return strata_fail_allocation_in_steps(&self->resource, request, result, outcome.call, self->store.granule);
}

static strata_status find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot)
{
    atomic_fetch_add_explicit(&self->counts.misses, 1, memory_order_relaxed);
    if (__builtin_expect(!atomic_load_explicit(&self->started, memory_order_acquire), 0) && !begin(self))
        return strata_fail_host_memory("a pool");
    pool_thread_cache *local = strata_per_thread_self(&self->thread_caches, strata_thread_self());
    if (self->takes_finished && pool_is_time_to_poll(self, need))
        pool_poll(self);
    pool_stream_cache_give(self, local, need->stream->timeline, false);
    pool_result found = find_across_holes(self, need, slot);
    if (found == POOL_NOTHING)
        found = pool_find_own(self, need, slot);
    if (found == POOL_NOTHING)
        found = find_in_depot(self, need, local, slot);
    if (found == POOL_NOTHING && pool_stream_cache_give(self, local, need->stream->timeline, true))
        found = pool_find_own(self, need, slot);
    if (found == POOL_FOUND)
        return STRATA_SUCCESS;
    if (found == POOL_FAILED)
        return strata_fail_host_memory("a piece of a pool");
    return find_with_all_means(self, need, request, slot);
}

strata_status pool_find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot)
{
    pool_decay_step_if_due(self);
    strata_status status = find(self, need, request, slot);
    if (status == STRATA_SUCCESS)
        pool_decay_record(self, *slot);
    return status;
}
