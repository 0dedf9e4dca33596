/* Allocating. An extent of the thread's cache becomes a block without a lock, a driver call, or a write to another
 * thread's word. Other requests go to find.c. */
#include "core/base/error.h"
#include "core/blocks/blocks.h"
#include "resources/pool/hit.h"
#include "resources/pool/operations.h"

enum { MOST_ALIGNMENT = 1 << 30 };

/* Makes a block of an extent that is the caller's and was waited for. */
static inline void publish(pool *self, uint32_t slot, strata_timeline *timeline, bool known,
                           const strata_request *request, strata_block *out)
{
    strata_entry *entry = pool_entry(&self->heap, slot);
    strata_block_fill(out, request, pool_address_of(entry), (size_t)pool_bytes_of(entry),
                      request->alignment > POOL_GRANULE ? request->alignment : POOL_GRANULE);
    strata_entry_zero_layers(entry, pool_extent_in(&self->heap, entry));
    strata_entry_publish(self->heap.table, slot, timeline, known, out);
}

/* Replaces an entry whose generations are used up. False without host memory: the extent is free. */
static bool renew_extent(pool *self, uint32_t *slot)
{
    if (__builtin_expect(strata_entry_is_renewable(pool_entry(&self->heap, *slot)), 1))
        return true;
    strata_spin_take(&self->lock);
    const uint32_t number = pool_heap_renumber(&self->heap, *slot);
    if (!number)
        pool_heap_give(&self->heap, *slot, POOL_FREE);
    strata_spin_release(&self->lock);
    *slot = number;
    return number != 0;
}

static strata_status check_request(const pool *self, const strata_request *request)
{
    strata_status status = strata_check_alignment(&self->resource, request, MOST_ALIGNMENT);
    if (status != STRATA_SUCCESS || request->bytes <= self->store.bytes)
        return status;
    return strata_fail_allocation_in_steps((strata_resource *)&self->resource, request, CUDA_ERROR_OUT_OF_MEMORY,
                                           self->store.source->make_call, self->store.granule);
}

/* Begins the record of a block's first use. If an unknown stream has a new timeline meanwhile, that waits for the
 * extent's points too. */
static strata_status begin_record(strata_use_record *record, strata_stream_ref *stream, const strata_entry *entry)
{
    strata_status status = strata_use_record_begin_on(record, stream);
    while (__builtin_expect(status == STRATA_SUCCESS && record->stream.timeline != stream->timeline, 0)) {
        strata_use_record_cancel(record);
        *stream = record->stream;
        if ((status = strata_uses_visit(entry, strata_point_try_order, stream)) == STRATA_SUCCESS)
            status = strata_use_record_begin_on(record, stream);
    }
    return status;
}

/* Makes a block for an unknown stream from its cache; false: it has none that fits. The extent's point is the block's
 * first, and an event covers it. */
static bool make_for_unknown(pool *self, pool_thread_cache *local, pool_stream_cache *cache,
                             const strata_request *request, strata_block *out)
{
    uint32_t slot;
    if (request->alignment > POOL_GRANULE)
        return false;
    const uint64_t granules = pool_granules_for(request->bytes);
    strata_entry *entry = pool_stream_cache_take(self, local, cache, granules, &slot);
    if (!entry)
        return false;
    cache->live_blocks++;
    pool_zero_layers(self, entry);
    pool_publish_again(self, local, entry, slot, cache->timeline, cache->origin, false, granules, request, out);
    return true;
}

static pool_need need_for(const pool *self, const strata_request *request, const strata_stream_ref *stream)
{
    pool_need need = {
        .stream = stream,
        .budget_limit = UINT64_MAX,
        .side = request->bytes < POOL_SMALL_BLOCK ? POOL_SMALL : POOL_LARGE,
        .bytes = pool_granules_for(request->bytes) * POOL_GRANULE,
        .alignment = request->alignment > POOL_GRANULE ? request->alignment : POOL_GRANULE,
    };
    const uint64_t whole = pool_contiguous_bytes(self, need.bytes);
    if (whole) {
        need.side = POOL_CONTIGUOUS;
        need.bytes = whole;
        need.alignment = need.alignment > self->store.granule ? need.alignment : POOL_GRANULE;
    }
    return need;
}

static strata_status allocate_from_heap(pool *self, pool_thread_cache *local, const strata_request *request,
                                        strata_stream_ref stream, strata_block *out)
{
    uint32_t slot;
    const pool_need need = need_for(self, request, &stream);
    strata_status status = pool_find(self, &need, request, &slot);
    if (status != STRATA_SUCCESS)
        return status;
    if (!renew_extent(self, &slot))
        return strata_fail_host_memory("a block");
    strata_use_record record;
    if ((status = begin_record(&record, &stream, pool_entry(&self->heap, slot))) != STRATA_SUCCESS) {
        pool_give_range(self, slot, POOL_FREE);
        return status;
    }
    const pool_points points = pool_points_set_aside(pool_entry(&self->heap, slot));
    publish(self, slot, record.stream.timeline, record.stream.known, request, out);
    status = strata_use_record_end(&record);
    if (status == STRATA_SUCCESS) {
        pool_points_drop(points);
        pool_count_live_somewhere(self, local, (int64_t)out->bytes, 1);
        return STRATA_SUCCESS;
    }
    strata_entry_end_life(pool_entry(&self->heap, slot)); /* no work was submitted for it */
    pool_points_put_back(pool_entry(&self->heap, slot), points);
    pool_give_range(self, slot, POOL_FREE);
    *out = (strata_block){0};
    return status;
}

static __attribute__((noinline)) strata_status allocate_slow(pool *self, const strata_request *request,
                                                             strata_block *out)
{
    *out = (strata_block){0};
    strata_stream_ref stream;
    strata_status status = check_request(self, request);
    if (status != STRATA_SUCCESS || !request->bytes)
        return status;
    strata_capture_frees_try_flush_any(&self->resource.stack->capture_frees, request->stream);
    if ((status = strata_stream_resolve(self->device, request->stream, &stream)) != STRATA_SUCCESS)
        return status;
    pool_thread_cache *local = strata_per_thread_self(&self->thread_caches, strata_thread_self());
    pool_stream_cache *cache = local && !stream.known ? pool_stream_cache_of(local, stream.timeline) : NULL;
    if (cache) {
        *pool_stream_cache_slot(local, request->stream) = cache;
        if (make_for_unknown(self, local, cache, request, out))
            return STRATA_SUCCESS;
    }
    return allocate_from_heap(self, local, request, stream, out);
}

static __attribute__((noinline)) strata_status allocate_unknown(pool *self, pool_thread_cache *local,
                                                                const strata_request *request, strata_block *out)
{
    const bool fast = request->bytes && !strata_capture_frees_any(&self->resource.stack->capture_frees);
    uint64_t id;
    pool_stream_cache *cache = fast ? pool_stream_cache_of_unknown_at(local, request->stream, &id) : NULL;
    if (__builtin_expect(!cache, 0))
        return allocate_slow(self, request, out);
    if (__builtin_expect(make_for_unknown(self, local, cache, request, out), 1))
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    const strata_status status = check_request(self, request);
    const strata_stream_ref stream = {cache->timeline, self->device, request->stream, id, false};
    return status == STRATA_SUCCESS ? allocate_from_heap(self, local, request, stream, out) : status;
}

static __attribute__((noinline)) strata_status allocate_elsewhere(pool *self, const strata_request *request,
                                                                  strata_block *out)
{
    pool_thread_cache *local = pool_thread_cache_self(self);
    if (!local || request->alignment > POOL_GRANULE)
        return allocate_slow(self, request, out);
    const strata_timeline *timeline = strata_known_timeline(self->device, request->stream);
    if (!timeline)
        return allocate_unknown(self, local, request, out);
    uint32_t slot;
    const uint64_t granules = pool_granules_for(request->bytes);
    pool_stream_cache *cache = pool_stream_cache_find(local, timeline, request->stream);
    strata_entry *entry = cache ? pool_stream_cache_take(self, local, cache, granules, &slot) : NULL;
    if (!entry)
        return allocate_slow(self, request, out);
    pool_zero_layers(self, entry);
    pool_make_for_known(self, local, entry, slot, cache, granules, request, out);
    return STRATA_SUCCESS;
}

static __attribute__((noinline)) strata_made make_elsewhere(pool *self, const strata_request *request,
                                                            strata_block *out)
{
    const strata_status status = allocate_elsewhere(self, request, out);
    const bool made = status == STRATA_SUCCESS && out->id.generation;
    return (strata_made){status, made ? pool_entry(&self->heap, out->id.slot) : NULL};
}

/* Fast path, without a call. NULL: nothing is done. */
static inline __attribute__((always_inline)) strata_entry *take_fast(pool *self, const strata_request *request,
                                                                     strata_block *out)
{
    pool_thread_cache *local = pool_thread_cache_if_present(self);
    if (__builtin_expect(!local || request->alignment > POOL_GRANULE, 0))
        return NULL;
    pool_stream_cache *cache = pool_stream_cache_at(local, request->stream);
    if (__builtin_expect(!cache || !pool_thread_cache_try_enter(self, local), 0))
        return NULL;
    pool_bin *bin = pool_bin_for(cache, request->bytes);
    if (__builtin_expect(!bin, 0)) {
        pool_thread_cache_leave(local);
        return NULL;
    }
    uint32_t slot;
    const uint64_t granules = bin->granules;
    strata_entry *entry = pool_bin_pop(&self->heap, cache, bin, &slot);
    pool_thread_cache_leave(local);
    pool_zero_layers(self, entry);
    pool_make_for_known(self, local, entry, slot, cache, granules, request, out);
    return entry;
}

strata_status pool_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    const strata_entry *entry = take_fast((pool *)resource, request, out);
    return __builtin_expect(entry != NULL, 1) ? STRATA_SUCCESS : allocate_elsewhere((pool *)resource, request, out);
}

strata_made pool_allocate_own(strata_resource *resource, const strata_request *request, strata_block *out)
{
    strata_entry *entry = take_fast((pool *)resource, request, out);
    return __builtin_expect(entry != NULL, 1) ? (strata_made){STRATA_SUCCESS, entry}
                                              : make_elsewhere((pool *)resource, request, out);
}

static __attribute__((noinline)) strata_made make_plain_elsewhere(pool *self, size_t bytes, CUstream stream,
                                                                  strata_block *out)
{
    const strata_made made = make_elsewhere(self, &(strata_request){.bytes = bytes, .stream = stream}, out);
    if (made.status != STRATA_SUCCESS)
        *out = (strata_block){0};
    return made;
}

strata_made pool_allocate_plain(strata_resource *resource, size_t bytes, CUstream stream, strata_block *out)
{
    const strata_request request = {.bytes = bytes, .stream = stream}; /* stays in registers */
    strata_entry *entry = take_fast((pool *)resource, &request, out);
    return __builtin_expect(entry != NULL, 1) ? (strata_made){STRATA_SUCCESS, entry}
                                              : make_plain_elsewhere((pool *)resource, bytes, stream, out);
}

strata_status pool_top_allocate(strata_resource *resource, size_t bytes, CUstream stream, strata_block *out)
{
    const strata_request request = {.bytes = bytes, .stream = stream}; /* stays in registers */
    const strata_entry *entry = take_fast((pool *)resource, &request, out);
    return __builtin_expect(entry != NULL, 1) ? STRATA_SUCCESS
                                              : make_plain_elsewhere((pool *)resource, bytes, stream, out).status;
}
