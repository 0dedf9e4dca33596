/* Freeing. Memory goes to the thread's cache, a magazine, or the heap, and keeps the points that it waits for
 * (pending.h). */
#include "core/base/error.h"
#include "core/blocks/blocks.h"
#include "core/stack/calls.h"
#include "core/stack/completions.h"
#include "core/stack/default_operations.h"
#include "core/stack/own_stream_free.h"
#include "core/streams/stream_wait.h"
#include "core/streams/timeline.h"
#include "resources/pool/hit.h"
#include "resources/pool/operations.h"

/* Member by member: as one value it would be put together in registers first. */
static inline void report_to_layers(pool *self, const strata_block *block)
{
    strata_completion completion;
    completion.kind = STRATA_COMPLETION_FINISHED;
    completion.id = block->id;
    completion.bytes = block->bytes;
    completion.last = true;
    strata_report_completion_above(&self->resource, &completion);
}

static inline void report(pool *self, const strata_block *block)
{
    if (self->resource.stack->completion_sink_count)
        report_to_layers(self, block);
}

/* Ends a block: its points are now the memory's. */
static inline void finish_block(pool *self, strata_entry *entry, const strata_block *block)
{
    report(self, block);
    if (__builtin_expect(!atomic_load_explicit(&entry->alloc_known, memory_order_relaxed), 0))
        strata_timeline_remove_block(atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed));
    atomic_store_explicit(&entry->word, block->id.generation << STRATA_WORD_GENERATION | STRATA_BLOCK_FREED,
                          memory_order_release);
}

typedef struct freeing {
    const strata_stream_ref *stream;
    const strata_clock *clock;
} freeing;

static bool is_followed(strata_point point, void *data)
{
    const freeing *by = data;
    return strata_point_timeline(point) != by->stream->timeline->number &&
           strata_timeline_follows(by->stream, by->clock, point);
}

/* Adds the freeing stream's point; without host memory, waits for the stream. *stream: the stream, if found. */
static strata_status add_or_wait_for_free(pool *self, strata_entry *entry, CUstream handle, strata_stream_ref *stream)
{
    strata_use_record record;
    strata_status status = strata_stream_resolve(self->device, handle, stream);
    if (status == STRATA_SUCCESS)
        status = strata_use_record_begin_on(&record, stream);
    if (status != STRATA_SUCCESS)
        stream->timeline = NULL;
    if (status == STRATA_ERROR_OUT_OF_HOST_MEMORY)
        return strata_stream_wait_instead(self->device, handle, status);
    if (status != STRATA_SUCCESS)
        return status;
    *stream = record.stream;
    strata_clock *clock = strata_use_record_clock(&record); /* before the point, which then covers the clock */
    const strata_point point = strata_timeline_now(stream->timeline);
    const bool added = pool_points_add(entry, point);
    if ((status = strata_use_record_end(&record)) == STRATA_SUCCESS && !added)
        status = strata_stream_wait_instead(self->device, handle, strata_point_synchronize(point));
    if (status == STRATA_SUCCESS)
        pool_points_forget(entry, is_followed, &(freeing){stream, clock});
    strata_use_record_clock_done(&record, clock);
    return status;
}

/* A wait in place of the point is no error. */
static strata_status add_free_on(pool *self, strata_entry *entry, CUstream handle, strata_stream_ref *stream)
{
    strata_error_suppress_begin();
    const strata_status status = add_or_wait_for_free(self, entry, handle, stream);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

static strata_status add_end_of_alloc_stream(const pool *self, strata_entry *entry, const strata_block *block)
{
    strata_point end;
    strata_status status = strata_uses_end_of_alloc_stream(entry, block, &end);
    return status != STRATA_SUCCESS || pool_points_add(entry, end) ? status
                                                                   : strata_point_synchronize_for(self->device, end);
}

/* Refuses a free if a use can never be waited for: no event, and the stream's handle is unknown. */
static strata_status check_used(strata_point point, void *device)
{
    const uint16_t number = strata_point_timeline(point);
    const strata_timeline *timeline = strata_timeline_of(point);
    if (strata_point_known_complete(point) ||
        strata_timeline_is_known(number, atomic_load_explicit(&timeline->incarnation, memory_order_relaxed)) ||
        strata_point_epoch(strata_timeline_last_closed(number)) >= strata_point_epoch(point))
        return STRATA_SUCCESS;
    return strata_point_synchronize_for(device, point);
}

/* Caches memory that waits for its unknown stream alone, or frees it. Known streams come here with early events: others
 * are likely to take it. */
static void keep_for_unknown(pool *self, pool_thread_cache *local, strata_entry *entry, uint32_t slot,
                             const strata_stream_ref *stream)
{
    strata_timeline *timeline = stream->timeline;
    const bool own = local && timeline && !stream->known && strata_entry_is_renewable(entry) &&
                     pool_points_timeline(entry) == timeline->number;
    if (!own) {
        pool_give_range(self, slot, POOL_FREE);
        return;
    }
    pool_points_join(entry);
    pool_stream_cache_keep_slow(self, local, timeline, stream->handle, slot);
}

/* The memory waits for all uses and the freeing stream. With `local`, may be cached. */
static strata_status free_in_order(pool *self, pool_thread_cache *local, strata_entry *entry, const strata_block *block,
                                   CUstream handle)
{
    strata_stream_ref stream = {.handle = handle};
    strata_status status = handle == STRATA_STREAM_GONE ? add_end_of_alloc_stream(self, entry, block)
                                                        : add_free_on(self, entry, handle, &stream);
    if (status == STRATA_SUCCESS)
        status = strata_uses_visit(entry, check_used, self->device);
    if (status != STRATA_SUCCESS)
        return status;
    finish_block(self, entry, block);
    keep_for_unknown(self, local, entry, block->id.slot, &stream);
    return STRATA_SUCCESS;
}

static strata_status perform_free(strata_resource *resource, strata_entry *entry, const strata_block *block,
                                  CUstream stream, bool finished)
{
    pool *self = (pool *)resource;
    const uint64_t bytes = pool_bytes_of(entry);
    strata_status status = STRATA_SUCCESS;
    if (!finished) {
        status = free_in_order(self, NULL, entry, block, stream);
    } else {
        finish_block(self, entry, block);
        pool_give_range(self, block->id.slot, POOL_FREE);
    }
    if (status == STRATA_SUCCESS)
        strata_counters_add(&self->deferred, strata_thread_self(), 0, -(int64_t)bytes);
    return status;
}

static strata_status defer(pool *self, strata_entry *entry, const strata_block *block, CUstream stream)
{
    strata_thread *thread = strata_thread_self();
    const int64_t bytes = (int64_t)pool_bytes_of(entry);
    strata_counters_add(&self->deferred, thread, 0, bytes); /* another thread may perform it now */
    strata_status status = strata_capture_frees_add(&self->resource.stack->capture_frees, &self->resource, perform_free,
                                                    entry, block, stream);
    if (status != STRATA_SUCCESS)
        strata_counters_add(&self->deferred, thread, 0, -bytes);
    return status;
}

static __attribute__((noinline)) strata_status free_slow(pool *self, strata_entry *entry, const strata_block *block,
                                                         CUstream stream)
{
    const int64_t bytes = (int64_t)pool_bytes_of(entry);
    pool_thread_cache *local = strata_per_thread_self(&self->thread_caches, strata_thread_self());
    strata_capture_frees_try_flush_any(&self->resource.stack->capture_frees, stream);
    strata_error_suppress_begin();
    strata_status status = free_in_order(self, local, entry, block, stream);
    strata_error_suppress_end(status != STRATA_SUCCESS && status != STRATA_ERROR_STREAM_CAPTURE);
    if (status == STRATA_ERROR_STREAM_CAPTURE)
        status = defer(self, entry, block, stream);
    if (status == STRATA_SUCCESS)
        pool_count_live_somewhere(self, local, -bytes, -1);
    else
        strata_entry_revive(entry);
    pool_decay_step_if_due(self);
    return status;
}

/* As pool_stream_cache_keep_slow; also returns memory that decay is due to return. Returns `status`. */
static __attribute__((noinline)) strata_status keep_slow(pool *self, pool_thread_cache *local,
                                                         strata_timeline *timeline, CUstream handle, uint32_t slot,
                                                         strata_status status)
{
    pool_stream_cache_keep_slow(self, local, timeline, handle, slot);
    pool_decay_step_if_due(self);
    return status;
}

/* Frees a block that one other stream used, on a known stream: the memory waits for both, without a query. */
static strata_status free_foreign(pool *self, pool_thread_cache *local, strata_entry *entry, const strata_block *block,
                                  const strata_timeline *timeline, CUstream handle)
{
    if (__builtin_expect(atomic_load_explicit(&strata_timelines_uncovered, memory_order_relaxed), 0))
        return free_slow(self, entry, block, handle); /* checks if both can be waited for */
    const uint32_t slot = block->id.slot;
    const uint64_t bytes = block->bytes;
    atomic_store_explicit(&entry->last_read, strata_timeline_now(timeline) | STRATA_POINT_WRITE, memory_order_relaxed);
    finish_block(self, entry, block);
    pool_count_live(local, -(int64_t)bytes, -1);
    if (__builtin_expect(!pool_magazine_keep(self, local, timeline, slot, entry, pool_granules(bytes)), 0)) {
        pool_magazine_keep_slow(self, local, timeline, slot);
        pool_decay_step_if_due(self);
    }
    return STRATA_SUCCESS;
}

/* As keep_used_block, for a block whose free the layers above were already told of. */
static inline __attribute__((always_inline)) void
keep_reported_block(pool *self, pool_thread_cache *local, strata_timeline *timeline, pool_stream_cache *cache,
                    strata_entry *entry, const strata_block *block, strata_point now, CUstream handle)
{
    pool_end_used_block(local, entry, block, now);
    bool kept = cache && pool_thread_cache_enter(self, local);
    if (kept) {
        kept = pool_bin_put(self, cache, entry, block->id.slot, block->bytes / POOL_GRANULE);
        pool_thread_cache_leave(local);
    }
    if (!kept)
        keep_slow(self, local, timeline, handle, block->id.slot, STRATA_SUCCESS);
}

/* Ends a block that the freeing stream alone used, and keeps its memory. */
static void keep_used_block(pool *self, pool_thread_cache *local, strata_timeline *timeline, pool_stream_cache *cache,
                            strata_entry *entry, const strata_block *block, strata_point now, CUstream handle)
{
    report(self, block);
    keep_reported_block(self, local, timeline, cache, entry, block, now, handle);
}

static strata_status free_known(pool *self, pool_thread_cache *local, strata_entry *entry, const strata_block *block,
                                strata_timeline *timeline, CUstream handle)
{
    if (strata_timeline_is_early(timeline) || !pool_stream_was_known(entry))
        return free_slow(self, entry, block, handle);
    pool_stream_cache_open(self, local, timeline);
    pool_stream_cache *cache = pool_stream_cache_find(local, timeline, handle);
    if (pool_last_timeline(entry) != timeline->number)
        return free_foreign(self, local, entry, block, timeline, handle);
    keep_used_block(self, local, timeline, cache, entry, block, strata_timeline_now(timeline) | STRATA_POINT_WRITE,
                    handle);
    return STRATA_SUCCESS;
}

static inline void leave_alloc_stream(pool_stream_cache *cache, const strata_entry *entry)
{
    const uint16_t timeline = atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed);
    if (pool_stream_was_known(entry))
        return;
    if (__builtin_expect(timeline == cache->timeline->number, 1))
        cache->live_blocks--;
    else
        strata_timeline_remove_block(timeline);
}

/* Frees on an unknown stream: the event of its last free is recorded again, and covers this one too. */
static strata_status free_unknown(pool *self, pool_thread_cache *local, strata_entry *entry, const strata_block *block,
                                  CUstream handle)
{
    uint64_t id;
    pool_stream_cache *cache = pool_stream_cache_of_unknown_at(local, handle, &id);
    if (__builtin_expect(!cache || pool_last_timeline(entry) != cache->timeline->number, 0))
        return free_slow(self, entry, block, handle);
    const strata_stream_ref stream = {cache->timeline, self->device, handle, id, false};
    const strata_point now = strata_timeline_now(cache->timeline);
    if (__builtin_expect(!strata_timeline_rerecord(&stream, now), 0))
        return free_slow(self, entry, block, handle);
    leave_alloc_stream(cache, entry);
    keep_used_block(self, local, cache->timeline, cache, entry, block, now | STRATA_POINT_WRITE, handle);
    return STRATA_SUCCESS;
}

static __attribute__((noinline)) strata_status free_retired(pool *self, strata_entry *entry, const strata_block *block,
                                                            CUstream handle)
{
    pool_thread_cache *local = pool_thread_cache_self(self);
    if (!local || handle == STRATA_STREAM_GONE || block->id.generation == STRATA_GENERATION_LAST ||
        !pool_is_fast_free(self, entry))
        return free_slow(self, entry, block, handle);
    strata_timeline *timeline = strata_known_timeline(self->device, handle);
    return timeline ? free_known(self, local, entry, block, timeline, handle)
                    : free_unknown(self, local, entry, block, handle);
}

/* As keep_reported_block, where the fast path could not enter the thread's cache. */
static __attribute__((noinline)) strata_status keep_reported(pool *self, pool_thread_cache *local, strata_entry *entry,
                                                             const strata_block *block, pool_stream_cache *cache,
                                                             CUstream handle)
{
    keep_reported_block(self, local, cache->timeline, cache, entry, block, pool_stream_cache_now(cache), handle);
    return STRATA_SUCCESS;
}

/* Ends a block, puts its memory into the entered cache, and leaves that. False: pool_stream_cache_keep_slow is due. */
static inline __attribute__((always_inline)) bool keep_fast(pool *self, pool_thread_cache *local,
                                                            pool_stream_cache *cache, strata_entry *entry,
                                                            const strata_block *block, uint32_t slot, strata_point now)
{
    const size_t bytes = block->bytes;
    pool_end_used_block(local, entry, block, now);
    const bool kept = pool_bin_put(self, cache, entry, slot, bytes / POOL_GRANULE);
    pool_thread_cache_leave(local);
    return kept;
}

/* Fast path: a known stream whose cache is in its slot. Calls are tail calls, unless layers want completions. */
static inline __attribute__((always_inline)) strata_status
free_fast(pool *self, strata_entry *entry, const strata_block *block, CUstream handle, bool reports)
{
    pool_thread_cache *local = pool_thread_cache_if_present(self);
    if (__builtin_expect(!local || !pool_is_fast_free(self, entry), 0))
        return free_retired(self, entry, block, handle);
    pool_stream_cache *cache = pool_stream_cache_at(local, handle);
    if (__builtin_expect(!cache || !pool_stream_was_known(entry), 0))
        return free_retired(self, entry, block, handle);
    if (__builtin_expect(pool_last_timeline(entry) != cache->timeline->number, 0))
        return free_foreign(self, local, entry, block, cache->timeline, handle);
    if (reports)
        report_to_layers(self, block);
    if (__builtin_expect(!pool_thread_cache_try_enter(self, local), 0))
        return reports ? keep_reported(self, local, entry, block, cache, handle)
                       : free_retired(self, entry, block, handle);
    const uint32_t slot = block->id.slot;
    if (__builtin_expect(!keep_fast(self, local, cache, entry, block, slot, pool_stream_cache_now(cache)), 0))
        return keep_slow(self, local, cache->timeline, handle, slot, STRATA_SUCCESS);
    return STRATA_SUCCESS;
}

static __attribute__((noinline)) strata_status free_and_report(pool *self, strata_entry *entry,
                                                               const strata_block *block, CUstream handle)
{
    return free_fast(self, entry, block, handle, true);
}

static __attribute__((noinline)) strata_status deallocate_slow(pool *self, const strata_block *block, CUstream handle)
{
    strata_entry *entry;
    strata_status status = strata_entry_retire_slow(strata_resource_table(&self->resource), block, &entry);
    return status == STRATA_SUCCESS ? free_retired(self, entry, block, handle) : status;
}

strata_status pool_deallocate(strata_resource *resource, const strata_block *block, CUstream handle)
{
    pool *self = (pool *)resource;
    strata_entry *entry = strata_entry_retire_fast(strata_resource_table(resource), block, 0);
    if (__builtin_expect(!entry, 0))
        return deallocate_slow(self, block, handle);
    return resource->stack->completion_sink_count ? free_and_report(self, entry, block, handle)
                                                  : free_fast(self, entry, block, handle, false);
}

/* ---- on the allocation stream, which was found to be known and late ----
 *
 * Another thread may unregister the stream meanwhile. The fast paths pass no handle to the driver. They read the
 * stream's epoch before they see that it is known: the events that end the stream cover this point. */

/* Frees a retired block by its stream's handle, which no other path needs. The stream is looked up once more: if it has
 * ended, the free begins anew. */
static __attribute__((noinline)) strata_status free_retired_own(pool *self, strata_entry *entry,
                                                                const strata_block *block)
{
    strata_status status;
    strata_thread *thread = strata_thread_self();
    strata_inflight_free_begin(thread);
    if (strata_late_alloc_timeline(entry, block->stream)) {
        status = free_retired(self, entry, block, block->stream);
    } else {
        strata_entry_revive(entry);
        status = strata_free_on_own_stream_slow(&self->resource, block);
    }
    strata_inflight_free_end(thread);
    return status;
}

/* Ends a retired block of the cache's stream and keeps its memory: `done`. Every call is a tail call. */
static inline __attribute__((always_inline)) strata_status
keep_own(pool *self, pool_thread_cache *local, pool_stream_cache *cache, strata_entry *entry, const strata_block *block,
         strata_point now, strata_status done,
         strata_status (*otherwise)(pool *self, strata_entry *entry, const strata_block *block))
{
    if (__builtin_expect(!pool_is_own_free(self, entry, now) || !pool_thread_cache_try_enter(self, local), 0))
        return otherwise(self, entry, block);
    const uint32_t slot = block->id.slot;
    const CUstream handle = block->stream;
    if (__builtin_expect(!keep_fast(self, local, cache, entry, block, slot, now), 0))
        return keep_slow(self, local, cache->timeline, handle, slot, done);
    return done;
}

/* The layers above learn of the completion by what this returns. */
strata_status pool_deallocate_own(strata_resource *resource, const strata_block *block, strata_entry *entry,
                                  strata_timeline *timeline)
{
    pool *self = (pool *)resource;
    pool_thread_cache *local = pool_thread_cache_if_present(self);
    strata_point now;
    pool_stream_cache *cache = local ? pool_own_cache(local, entry, block->stream, &now) : NULL;
    if (__builtin_expect(!cache || !strata_entry_retire_found(self->heap.table, entry, block, 0), 0))
        return strata_deallocate_plainly(resource, block, entry, timeline);
    return keep_own(self, local, cache, entry, block, now, STRATA_FREE_COMPLETE, free_retired_own);
}

static __attribute__((noinline)) strata_status top_free_retired(pool *self, strata_entry *entry,
                                                                const strata_block *block)
{
    const strata_status status = free_retired_own(self, entry, block);
    return strata_ends_without_driver(status) ? strata_free_after_reset(&self->resource, block) : status;
}

/* strata_top_deallocate_plainly and pool_deallocate_own in one. An empty block names no table, and goes the plain way.
 */
strata_status pool_top_deallocate(strata_resource *resource, const strata_block *block)
{
    pool *self = (pool *)resource;
    pool_thread_cache *local = pool_thread_cache_if_present(self);
    if (__builtin_expect(!local || strata_driver_state_now() != STRATA_DRIVER_OPEN, 0))
        return strata_top_deallocate_plainly(resource, block);
    const strata_table *table = self->heap.table;
    strata_entry *entry = strata_table_lookup(table, block->id);
    strata_point now;
    pool_stream_cache *cache =
        __builtin_expect(entry != NULL, 1) ? pool_own_cache(local, entry, block->stream, &now) : NULL;
    if (__builtin_expect(!cache || !strata_entry_retire_found(table, entry, block, 0), 0))
        return strata_top_deallocate_plainly(resource, block);
    return keep_own(self, local, cache, entry, block, now, STRATA_SUCCESS, top_free_retired);
}
