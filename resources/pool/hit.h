/* A hit of a thread's cache, and the free that goes back into it: what the pool's own fast paths share with those of
 * resources/fused. */
#ifndef STRATA_RESOURCES_POOL_HIT_H
#define STRATA_RESOURCES_POOL_HIT_H

#include "core/blocks/blocks.h"
#include "core/stack/own_stream_free.h"
#include "resources/pool/thread_cache.h"

/* ---- allocating ---- */

static inline void pool_zero_layers(const pool *self, strata_entry *entry)
{
    if (__builtin_expect(self->heap.offset != sizeof *entry, 0)) /* layers have bytes of their own */
        strata_entry_zero_layers(entry, pool_extent_in(&self->heap, entry));
}

/* The layers' bytes are as they are to be, here and in pool_make_for_known. */
static inline __attribute__((always_inline)) void pool_publish_again(pool *self, pool_thread_cache *local,
                                                                     strata_entry *entry, uint32_t slot,
                                                                     const strata_timeline *timeline, uint64_t origin,
                                                                     bool known, uint64_t granules,
                                                                     const strata_request *request, strata_block *out)
{
    const uint32_t incarnation = atomic_load_explicit(&timeline->incarnation, memory_order_relaxed);
    strata_entry_publish_again(self->heap.table, entry, slot, origin,
                               strata_entry_beginning(incarnation, POOL_GRANULE, known), POOL_GRANULE, request, out);
    strata_own_word_add(&local->live_bytes, (int64_t)(granules * POOL_GRANULE));
    strata_own_word_add(&local->hits, 1);
}

static inline __attribute__((always_inline)) void pool_make_for_known(pool *self, pool_thread_cache *local,
                                                                      strata_entry *entry, uint32_t slot,
                                                                      const pool_stream_cache *cache, uint64_t granules,
                                                                      const strata_request *request, strata_block *out)
{
    const strata_timeline *timeline = cache->timeline;
    const uint64_t origin = cache->origin;
    atomic_store_explicit(&entry->last_write, pool_stream_cache_now(cache), memory_order_relaxed);
    pool_publish_again(self, local, entry, slot, timeline, origin, true, granules, request, out);
}

/* ---- freeing ---- */

static inline bool pool_stream_was_known(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->alloc_known, memory_order_relaxed);
}

static inline uint16_t pool_last_timeline(const strata_entry *entry)
{
    return strata_point_timeline(atomic_load_explicit(&entry->last_write, memory_order_relaxed));
}

/* Ends a block whose memory waits for the freeing stream alone: the free counts as a write, at `now`. */
static inline void pool_end_used_block(pool_thread_cache *local, strata_entry *entry, const strata_block *block,
                                       strata_point now)
{
    atomic_store_explicit(&entry->last_write, now, memory_order_relaxed);
    atomic_store_explicit(&entry->word, block->id.generation << STRATA_WORD_GENERATION | STRATA_BLOCK_FREED,
                          memory_order_release);
    pool_count_live(local, -(int64_t)block->bytes, -1);
}

/* Whether a block was used on one stream alone, and no free waits for a capture. */
static inline bool pool_is_fast_free(const pool *self, const strata_entry *entry)
{
    return !(atomic_load_explicit(&entry->last_read, memory_order_relaxed) |
             (uintptr_t)atomic_load_explicit(&entry->more, memory_order_relaxed)) &&
           !strata_capture_frees_any(&self->resource.stack->capture_frees);
}

/* Whether a retired block's memory waits for `now` on its allocation stream alone, which was known. False also after a
 * use on it since `now`. */
static inline bool pool_is_own_free(const pool *self, const strata_entry *entry, strata_point now)
{
    return pool_is_fast_free(self, entry) && pool_stream_was_known(entry) &&
           now - atomic_load_explicit(&entry->last_write, memory_order_relaxed) <= STRATA_POINT_EPOCH_MASK;
}

/* The cache of the block's allocation stream, if the stream is known and late: as strata_late_alloc_timeline, whose
 * table of timelines need not be read, since a cache has its timeline. NULL also if the thread has no such cache.
 * *now: the stream's point before it was seen to be known. */
static inline __attribute__((always_inline)) pool_stream_cache *
pool_own_cache(const pool_thread_cache *local, const strata_entry *entry, CUstream handle, strata_point *now)
{
    const uint16_t number = atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed);
    pool_stream_cache *cache = local->recent;
    if (__builtin_expect(!cache || cache->timeline->number != number, 0)) {
        cache = local->caches[number % POOL_STREAM_CACHES];
        if (!cache || cache->timeline->number != number)
            return NULL;
    }
    const strata_timeline *timeline = cache->timeline;
    *now = pool_stream_cache_now(cache);
    const bool own = strata_entry_is_incarnation(entry, timeline) && strata_timeline_is_late(timeline, handle);
    return __builtin_expect(own, 1) ? cache : NULL;
}

#endif
