/* A thread's cache: extents that a thread freed on a stream and that wait for no other, for equal requests on that
 * stream. Its fast path touches no word that another thread writes.
 *
 *     thread cache -+- stream cache (one a recent stream) -- bins (one a size) -- extents, last freed first
 *                   +- magazines (one a size): extents that wait for two streams
 *
 * A stream cache belongs to a timeline. The thread that takes an extent has just seen this timeline at its stream. It
 * need not wait, even if another stream had the timeline: a timeline is reused only when its stream's work is complete.
 * For an unknown stream, the free has recorded an event.
 *
 * When memory runs short, the thread with map_lock empties all caches: each has a busy flag (core/base/busy_flag.h),
 * and `flushing` excludes the threads.
 *
 * A full magazine goes to the depot. A thread that needs its size takes it whole and waits once.
 *
 * The next thread with its number inherits a cache. */
#ifndef STRATA_RESOURCES_POOL_THREAD_CACHE_H
#define STRATA_RESOURCES_POOL_THREAD_CACHE_H

#include "core/base/own_word.h"
#include "resources/pool/internal.h"

enum {
    POOL_STREAM_CACHES = 16, /* of a thread */
    POOL_BINS = 64,          /* of a stream cache */
    POOL_MAGAZINES = 8,      /* of a thread */
    POOL_MAGAZINE_SIZE = 32, /* extents */
    POOL_AHEAD = 4,          /* extents of a magazine prefetched */
    POOL_SEARCHED = 8,
};

typedef struct pool_bin {
    uint64_t granules;  /* of each extent */
    strata_entry *last; /* last in; others follow through `below` */
} pool_bin;

typedef struct pool_stream_cache {
    strata_timeline *timeline; /* freeing stream's; held */
    uint64_t granules;         /* in bins */
    uint64_t origin;           /* of blocks made here: strata_entry_origin without a tag */
    strata_point written;      /* the stream's point of a write, without its epoch */
    uint32_t live_blocks;      /* of an unknown stream: blocks made minus ended here */
    uint32_t large;            /* last extent too large for a bin; 0: none */
    uint32_t next_given;       /* index of the bin that makes room next */
    pool_bin bins[POOL_BINS];
} pool_stream_cache;

/* The first extent has the points of all. */
typedef struct pool_magazine {
    uint32_t granules;
    uint32_t first; /* linked through `chain`; 0: none */
    uint32_t count;
    uint16_t writer, timeline;        /* timelines of the last write and of the free */
    strata_entry *latest[POOL_AHEAD]; /* by index modulo POOL_AHEAD */
} pool_magazine;

/* Owned by its thread while busy, else by the thread that empties caches. */
typedef struct pool_thread_cache {
    _Atomic uint32_t busy;                            /* written by its thread */
    _Atomic int64_t live_bytes;                       /* allocated minus freed; its thread writes, any reads */
    _Atomic int64_t hits;                             /* blocks from caches; as live_bytes */
    _Atomic int64_t live_beside_hits;                 /* other blocks made minus all freed; as live_bytes */
    pool_stream_cache *recent;                        /* taken from last; as by_handle; NULL: none */
    pool_stream_cache *caches[POOL_STREAM_CACHES];    /* by timeline number */
    pool_stream_cache *by_handle[POOL_STREAM_CACHES]; /* by hash; used by its thread alone */
    pool_magazine magazines[POOL_MAGAZINES];
    uint32_t rest; /* of a magazine being waited for; 0: none */
    bool keeps;    /* or has kept something: counted in the pool's keeping_threads */
} pool_thread_cache;

/* Rounds up to granules. 0 bytes give more than any device has; no sum overflows. */
static inline uint64_t pool_all_granules(uint64_t bytes)
{
    return (bytes - 1) / POOL_GRANULE + 1;
}

/* As pool_all_granules; 0: too large for a word of 32 bits. */
static inline uint32_t pool_granules(uint64_t bytes)
{
    const uint64_t granules = pool_all_granules(bytes);
    return granules < UINT32_MAX ? (uint32_t)granules : 0;
}

/* Sizes up to POOL_CLASSED share classes, eight for each doubling: a size has a bin of its own, and a near size finds
 * it. Larger ones are as asked for: a class would waste more than the search costs. */
enum { POOL_CLASSED = 256, POOL_CLASS_BINS = 48 };

/* Tables by granules - 1: the granules of a size's class, and where its bin is, in bytes behind the first one. A load
 * is faster than finding the highest bit. */
extern const uint16_t pool_class_granules[POOL_CLASSED] __attribute__((visibility("hidden")));
extern const uint16_t pool_class_bins[POOL_CLASSED] __attribute__((visibility("hidden")));

static inline pool_bin *pool_class_bin(pool_stream_cache *cache, uint64_t before)
{
    return (pool_bin *)(void *)((char *)cache->bins + pool_class_bins[before]);
}

static inline uint64_t pool_granules_for(uint64_t bytes)
{
    const uint64_t granules = pool_all_granules(bytes);
    return __builtin_expect(granules - 1 < POOL_CLASSED, 1) ? pool_class_granules[granules - 1] : granules;
}

static inline pool_bin *pool_bin_of(pool_stream_cache *cache, uint64_t granules)
{
    if (__builtin_expect(granules > POOL_CLASSED, 0))
        return &cache->bins[POOL_CLASS_BINS + ((uint32_t)granules * UINT32_C(0x9e3779b1) >> 28)];
    return pool_class_bin(cache, granules - 1);
}

_Static_assert(POOL_BINS == POOL_CLASS_BINS + (1 << (32 - 28)), "the hash chooses among the other bins");

static inline bool pool_thread_cache_enter(const pool *self, pool_thread_cache *local)
{
    return strata_busy_enter(&local->busy, &self->flushing.excluded);
}

/* As pool_thread_cache_enter, by the gate's fast way. */
static inline bool pool_thread_cache_try_enter(const pool *self, pool_thread_cache *local)
{
    return strata_busy_try_enter(&local->busy, &self->flushing);
}

static inline void pool_thread_cache_leave(pool_thread_cache *local)
{
    strata_busy_leave(&local->busy);
}

static inline pool_stream_cache *pool_stream_cache_of(const pool_thread_cache *local, const strata_timeline *timeline)
{
    pool_stream_cache *cache = local->caches[timeline->number % POOL_STREAM_CACHES];
    return __builtin_expect(cache && cache->timeline == timeline, 1) ? cache : NULL;
}

static inline pool_stream_cache **pool_stream_cache_slot(pool_thread_cache *local, CUstream handle)
{
    return &local->by_handle[(uint32_t)((uintptr_t)handle >> 4) * UINT32_C(0x9e3779b1) >> 28];
}

_Static_assert(POOL_STREAM_CACHES == 1 << (32 - 28), "the hash chooses among all caches");

/* The stream cache of a known stream; NULL: none. Its timeline shows, without a look-up, that the handle is still its
 * stream's. The one used last comes first: its address waits for no hash, and no number of a block's entry. */
static inline pool_stream_cache *pool_stream_cache_at(pool_thread_cache *local, CUstream handle)
{
    pool_stream_cache *cache = local->recent;
    if (__builtin_expect(cache && strata_timeline_is_late(cache->timeline, handle), 1))
        return cache;
    cache = *pool_stream_cache_slot(local, handle);
    if (!cache || !strata_timeline_is_late(cache->timeline, handle))
        return NULL;
    return local->recent = cache;
}

/* As pool_stream_cache_at, for an unknown stream: asks the driver for capture status and id. */
static inline pool_stream_cache *pool_stream_cache_of_unknown_at(pool_thread_cache *local, CUstream handle,
                                                                 uint64_t *id)
{
    pool_stream_cache *cache = *pool_stream_cache_slot(local, handle);
    *id = cache ? atomic_load_explicit(&cache->timeline->stream_id, memory_order_acquire) : 0;
    return *id && strata_stream_has_id(handle, *id) ? cache : NULL;
}

/* The cache is the caller's. */
static inline void pool_count_live(pool_thread_cache *local, int64_t bytes, int64_t blocks)
{
    strata_own_word_add(&local->live_bytes, bytes);
    strata_own_word_add(&local->live_beside_hits, blocks);
}

/* As pool_count_live; without `local`, in the pool's own counts. */
static inline void pool_count_live_somewhere(pool *self, pool_thread_cache *local, int64_t bytes, int64_t blocks)
{
    if (local) {
        pool_count_live(local, bytes, blocks);
        return;
    }
    atomic_fetch_add_explicit(&self->live_bytes_elsewhere, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->live_blocks_elsewhere, blocks, memory_order_relaxed);
}

static inline strata_point pool_stream_cache_now(const pool_stream_cache *cache)
{
    return cache->written | atomic_load_explicit(&cache->timeline->epoch, memory_order_acquire);
}

/* The calling thread's cache, made if needed; NULL: it can have none. */
static inline pool_thread_cache *pool_thread_cache_self(pool *self)
{
    return strata_per_thread_self(&self->thread_caches, strata_thread_current);
}

/* The calling thread's cache; NULL: none yet. */
static inline pool_thread_cache *pool_thread_cache_if_present(const pool *self)
{
    return strata_per_thread_if_present(&self->thread_caches);
}

/* Stores a known stream's cache in the handle's slot. NULL: none, or early events. */
static inline pool_stream_cache *pool_stream_cache_find(pool_thread_cache *local, const strata_timeline *timeline,
                                                        CUstream handle)
{
    pool_stream_cache *cache = strata_timeline_is_early(timeline) ? NULL : pool_stream_cache_of(local, timeline);
    if (cache)
        *pool_stream_cache_slot(local, handle) = cache;
    return cache;
}

/* Takes the last extent of a bin that is not empty. The cache is the caller's, also for the other functions of bins. */
static inline strata_entry *pool_bin_pop(const pool_heap *heap, pool_stream_cache *cache, pool_bin *bin, uint32_t *slot)
{
    strata_entry *entry = bin->last;
    const pool_extent *extent = pool_extent_in(heap, entry);
    *slot = extent->chain;
    bin->last = extent->below;
    cache->granules -= bin->granules;
    return entry;
}

/* The bin that has extents for a request; NULL: none. A class's bin has extents of one size, perhaps too small a one.
 */
static inline pool_bin *pool_bin_for(pool_stream_cache *cache, uint64_t bytes)
{
    const uint64_t before = (bytes - 1) / POOL_GRANULE;
    const bool classed = __builtin_expect(before < POOL_CLASSED, 1);
    pool_bin *bin = classed ? pool_class_bin(cache, before) : pool_bin_of(cache, before + 1);
    const bool fits = classed ? bin->granules > before : bin->granules == before + 1;
    return __builtin_expect(fits && bin->last, 1) ? bin : NULL;
}

/* The bin for an extent of this size; NULL: it has another size, or the cache is full. */
static inline pool_bin *pool_bin_with_room(const pool *self, pool_stream_cache *cache, uint64_t granules)
{
    pool_bin *bin = pool_bin_of(cache, granules);
    const bool room = bin->granules == granules && cache->granules + granules <= self->cache_granules;
    return __builtin_expect(room, 1) ? bin : NULL;
}

/* Puts an extent into its bin, which has room. */
static inline void pool_bin_push(const pool_heap *heap, pool_stream_cache *cache, pool_bin *bin, strata_entry *entry,
                                 uint32_t slot, uint64_t granules)
{
    pool_extent *extent = pool_extent_in(heap, entry);
    extent->below = bin->last;
    extent->chain = slot;
    bin->last = entry;
    cache->granules += granules;
}

static inline bool pool_bin_put(const pool *self, pool_stream_cache *cache, strata_entry *entry, uint32_t slot,
                                uint64_t granules)
{
    pool_bin *bin = pool_bin_with_room(self, cache, granules);
    if (bin)
        pool_bin_push(&self->heap, cache, bin, entry, slot, granules);
    return bin;
}

strata_entry *pool_stream_cache_take(pool *self, pool_thread_cache *local, pool_stream_cache *cache, uint64_t granules,
                                     uint32_t *slot);

/* The extent waits for the timelines of its last write and of the free, its last read. False: use the slow path. */
static inline bool pool_magazine_keep(pool *self, pool_thread_cache *local, const strata_timeline *timeline,
                                      uint32_t slot, strata_entry *entry, uint32_t granules)
{
    if (__builtin_expect(!pool_thread_cache_enter(self, local), 0))
        return false;
    pool_magazine *magazine = &local->magazines[granules % POOL_MAGAZINES];
    const strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    const bool kept = magazine->granules == granules && magazine->first && magazine->count < POOL_MAGAZINE_SIZE &&
                      magazine->timeline == timeline->number && magazine->writer == strata_point_timeline(write);
    if (__builtin_expect(kept, 1)) {
        const strata_point first =
            atomic_load_explicit(&pool_entry(&self->heap, magazine->first)->last_write, memory_order_relaxed);
        if (first > write) /* one timeline: the greater is later */
            atomic_store_explicit(&entry->last_write, first, memory_order_relaxed);
        pool_extent *extent = pool_extent_in(&self->heap, entry);
        extent->chain = magazine->first;
        extent->below = magazine->latest[magazine->count % POOL_AHEAD];
        magazine->latest[magazine->count % POOL_AHEAD] = entry;
        magazine->first = slot;
        magazine->count++;
    }
    pool_thread_cache_leave(local);
    return kept;
}

/* Starts a magazine, or frees the extent. */
void pool_magazine_keep_slow(pool *self, pool_thread_cache *local, const strata_timeline *timeline, uint32_t slot);

/* Returns the first extent of a magazine; 0: none. Others go to local->rest, where a flush finds them; without `local`
 * they are freed. */
uint32_t pool_depot_take(pool *self, pool_thread_cache *local, uint32_t granules);

/* Caches `rest` for the stream that now waits for it; NULL: frees it. */
void pool_stream_cache_fill(pool *self, pool_thread_cache *local, strata_timeline *timeline);

/* Gives the stream a cache, if no other stream has its place. */
void pool_stream_cache_open(pool *self, pool_thread_cache *local, strata_timeline *timeline);

/* Keeps an extent, making room, or frees it; stores the cache in the handle's slot. */
void pool_stream_cache_keep_slow(pool *self, pool_thread_cache *local, strata_timeline *timeline, CUstream handle,
                                 uint32_t slot);

/* Frees all that the thread caches for a stream. False: there was nothing. */
bool pool_stream_cache_give(pool *self, pool_thread_cache *local, const strata_timeline *timeline);

/* Frees the large extent. `lock` is held. */
void pool_stream_cache_give_large(pool *self, pool_thread_cache *local, const strata_timeline *timeline);

/* Frees all that any thread caches, and the depot. map_lock is held. */
void pool_thread_caches_flush(pool *self);

/* Requires that no call is in flight. */
void pool_thread_caches_destroy(pool *self);

#endif
