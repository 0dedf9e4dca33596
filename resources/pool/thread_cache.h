/* A thread's cache: extents that were freed on a stream and wait for no other, ready for a request of the same size on
 * that stream. Taking and keeping one touches no word that another thread writes.
 *
 *     thread cache -+- stream cache (one a recent stream) -- bins (one a size) -- extents, last freed first
 *                   +- magazines (one a size): extents that wait for two streams
 *
 * A stream cache belongs to one timeline. A thread that takes an extent has found out in the same call that its stream
 * has this timeline, and so waits for nothing. This also holds if another stream had the timeline when the extent was
 * cached: a timeline is reused only when all work of its stream is complete, and only this thread, which is busy with
 * its request, adds extents. The extents' points say what they wait for in any case; on an unknown stream the free
 * recorded an event that covers them, so an allocation records none. The last freed extent that is too large for a bin
 * stays until the thread next needs the heap.
 *
 * When memory runs short, the thread with the pool's map_lock empties all caches. Each
 * cache has a busy flag (core/base/busy_flag.h). Meanwhile threads use the heap.
 *
 * An extent that another stream has used goes into a magazine: extents of one size that wait for the same two streams.
 * A full magazine goes to the depot, and a thread that needs that size takes it as a whole and waits once for all of
 * it. So a thread that frees what another one allocates costs both little more than their own caches.
 *
 * A cache outlives its thread: its extents go to the next thread with that number, or back to the heap when memory runs
 * short. */
#ifndef STRATA_RESOURCES_POOL_THREAD_CACHE_H
#define STRATA_RESOURCES_POOL_THREAD_CACHE_H

#include "resources/pool/internal.h"

enum {
    POOL_STREAM_CACHES = 16, /* stream caches of a thread */
    POOL_BINS = 32,          /* sizes of a stream cache */
    POOL_MAGAZINES = 8,      /* magazines that a thread fills */
    POOL_MAGAZINE_SIZE = 32, /* extents of a full magazine */
    POOL_AHEAD = 4,          /* extents of a magazine that are prefetched */
    POOL_SEARCHED = 8,       /* magazines of a depot bucket that are searched for the size */
};

typedef struct pool_bin {
    uint64_t granules;  /* of each extent */
    strata_entry *last; /* last one put in; the others follow through below; NULL: none */
} pool_bin;

typedef struct pool_stream_cache {
    strata_timeline *timeline; /* of the stream on which the extents were freed; held */
    uint64_t granules;         /* in bins */
    uint64_t origin;           /* of blocks made here: strata_entry_origin without a tag */
    strata_point written;      /* a write of the stream, without its epoch */
    uint32_t live_blocks; /* blocks made here while the timeline's stream was unknown, minus those that ended here */
    uint32_t large;       /* last freed extent that is too large for a bin; 0: none */
    pool_bin bins[POOL_BINS];
} pool_stream_cache;

/* Extents of one size. The first one has the points of all. */
typedef struct pool_magazine {
    uint32_t granules; /* of each extent */
    uint32_t first;    /* linked through chain; 0: none */
    uint32_t count;
    uint16_t writer, timeline;        /* timelines that they wait for: of the last write, and of the free */
    strata_entry *latest[POOL_AHEAD]; /* last ones put in, by index modulo POOL_AHEAD */
} pool_magazine;

/* Except for the counts, owned by its thread while busy, else by the thread that empties the caches. */
typedef struct pool_thread_cache {
    _Atomic uint32_t busy;            /* busy flag */
    _Atomic int64_t live_bytes;       /* allocated minus freed by the thread; written by it alone, read by any */
    _Atomic uint64_t hits;            /* blocks from its caches; as live_bytes */
    _Atomic int64_t live_beside_hits; /* other blocks, minus all blocks freed; as live_bytes */
    pool_stream_cache *caches[POOL_STREAM_CACHES]; /* by timeline number */
    pool_stream_cache
        *by_handle[POOL_STREAM_CACHES]; /* last one used for a handle with that hash; used by the thread alone */
    pool_magazine magazines[POOL_MAGAZINES];
    uint32_t rest; /* of a magazine whose first extent the thread waits for, through chain; 0: none */
} pool_thread_cache;

/* 0: too much to round up. */
static inline uint64_t pool_all_granules(uint64_t bytes)
{
    return (bytes + POOL_GRANULE - 1) / POOL_GRANULE;
}

static inline uint32_t pool_granules(uint64_t bytes)
{
    const uint64_t granules = pool_all_granules(bytes);
    return granules < UINT32_MAX ? (uint32_t)granules : 0; /* 0: too large for any cache */
}

static inline pool_bin *pool_bin_of(pool_stream_cache *cache, uint64_t granules)
{
    return &cache->bins[(uint32_t)granules * UINT32_C(0x9e3779b1) >> 27];
}

_Static_assert(POOL_BINS == 1 << (32 - 27), "the hash chooses among all bins");

static inline bool pool_thread_cache_enter(const pool *self, pool_thread_cache *local)
{
    return strata_busy_enter(&local->busy, &self->flushing);
}

/* As pool_thread_cache_enter, for callers with a fallback: also fails where a full barrier would be needed. Makes no
 * call. */
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

_Static_assert(POOL_STREAM_CACHES == 1 << (32 - 28), "the hash chooses among all places");

/* The thread's cache for the known stream of a handle, if it is in the handle's slot: its timeline tells whether it is
 * still that stream's, without a look-up. */
static inline pool_stream_cache *pool_stream_cache_at(pool_thread_cache *local, CUstream handle)
{
    pool_stream_cache *cache = *pool_stream_cache_slot(local, handle);
    return __builtin_expect(cache && strata_timeline_is_late(cache->timeline, handle), 1) ? cache : NULL;
}

/* As pool_stream_cache_at, for an unknown stream, whose capture status and id the driver is asked for. */
static inline pool_stream_cache *pool_stream_cache_of_unknown_at(pool_thread_cache *local, CUstream handle,
                                                                 uint64_t *id)
{
    pool_stream_cache *cache = *pool_stream_cache_slot(local, handle);
    *id = cache ? atomic_load_explicit(&cache->timeline->stream_id, memory_order_acquire) : 0;
    return *id && strata_stream_has_id(handle, *id) ? cache : NULL;
}

/* Counts what a thread has live. The cache is the caller's. */
static inline void pool_count_bytes(pool_thread_cache *local, int64_t bytes)
{
    atomic_store_explicit(&local->live_bytes, atomic_load_explicit(&local->live_bytes, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
}

static inline void pool_count_hit(pool_thread_cache *local, uint64_t bytes)
{
    pool_count_bytes(local, (int64_t)bytes);
    atomic_store_explicit(&local->hits, atomic_load_explicit(&local->hits, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static inline void pool_count_live(pool_thread_cache *local, int64_t bytes, int64_t blocks)
{
    pool_count_bytes(local, bytes);
    atomic_store_explicit(&local->live_beside_hits,
                          atomic_load_explicit(&local->live_beside_hits, memory_order_relaxed) + blocks,
                          memory_order_relaxed);
}

/* As pool_count_live, for a thread that may have no cache, for want of numbers or host memory. */
static inline void pool_count_live_somewhere(pool *self, pool_thread_cache *local, int64_t bytes, int64_t blocks)
{
    if (local) {
        pool_count_live(local, bytes, blocks);
        return;
    }
    atomic_fetch_add_explicit(&self->live_bytes_elsewhere, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->live_blocks_elsewhere, blocks, memory_order_relaxed);
}

/* A write of the cache's stream, up to now. */
static inline strata_point pool_stream_cache_now(const pool_stream_cache *cache)
{
    return cache->written | atomic_load_explicit(&cache->timeline->epoch, memory_order_acquire);
}

/* The calling thread's cache; NULL: none. */
static inline pool_thread_cache *pool_thread_cache_self(pool *self)
{
    return strata_per_thread_self(&self->thread_caches, strata_thread_current);
}

/* The calling thread's cache if it was used before; else NULL. */
static inline pool_thread_cache *pool_thread_cache_if_present(const pool *self)
{
    const strata_thread *thread = strata_thread_current;
    return __builtin_expect(thread != NULL, 1) ? thread->per_thread[self->thread_caches.number] : NULL;
}

/* The thread's cache for a known stream, put into the handle's slot; NULL: none, or events are recorded early. */
static inline pool_stream_cache *pool_stream_cache_find(pool_thread_cache *local, const strata_timeline *timeline,
                                                        CUstream handle)
{
    pool_stream_cache *cache = timeline->early ? NULL : pool_stream_cache_of(local, timeline);
    if (cache)
        *pool_stream_cache_slot(local, handle) = cache;
    return cache;
}

/* Takes the last extent of the bin for that size; NULL: none. The cache is the caller's. */
static inline strata_entry *pool_bin_take(const pool_heap *heap, pool_stream_cache *cache, uint64_t granules,
                                          uint32_t *slot)
{
    pool_bin *bin = pool_bin_of(cache, granules);
    strata_entry *entry = bin->last;
    if (__builtin_expect(bin->granules != granules || !entry, 0))
        return NULL;
    const pool_extent *extent = pool_extent_in(heap, entry);
    *slot = extent->chain;
    bin->last = extent->below;
    cache->granules -= granules;
    return entry;
}

/* Puts an extent into the bin for its size; false if the bin has another size or the cache is full. The cache is the
 * caller's. */
static inline bool pool_bin_put(const pool *self, pool_stream_cache *cache, strata_entry *entry, uint32_t slot,
                                uint64_t granules)
{
    pool_bin *bin = pool_bin_of(cache, granules);
    const uint64_t full = cache->granules + granules;
    if (__builtin_expect(bin->granules != granules || full > self->cache_granules, 0))
        return false;
    pool_extent *extent = pool_extent_in(&self->heap, entry);
    extent->below = bin->last;
    extent->chain = slot;
    bin->last = entry;
    cache->granules = full;
    return true;
}

/* Takes an extent of that size out of one of the thread's caches; NULL: none. */
strata_entry *pool_stream_cache_take(pool *self, pool_thread_cache *local, pool_stream_cache *cache, uint64_t granules,
                                     uint32_t *slot);

/* Puts an extent into a magazine. It waits for the timeline of its entry's last write, and for the freeing stream, its
 * last read. False if this needs the slow path. */
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
        if (first > write) /* of one timeline: the greater point is later */
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

/* Puts an extent into a magazine, passing a different magazine in its place to the depot, or frees it into the heap. */
void pool_magazine_keep_slow(pool *self, pool_thread_cache *local, const strata_timeline *timeline, uint32_t slot);

/* Takes a magazine of that size from the depot. Returns its first extent, 0: none. The rest is kept in the cache's
 * `rest`, where a flush finds it, or freed without a cache. */
uint32_t pool_depot_take(pool *self, pool_thread_cache *local, uint32_t granules);

/* Moves `rest`, which the stream now waits for, into the thread's cache for the stream; without a stream, into the
 * heap. */
void pool_stream_cache_fill(pool *self, pool_thread_cache *local, strata_timeline *timeline);

/* Makes the thread's cache for a stream if its place is free. */
void pool_stream_cache_open(pool *self, pool_thread_cache *local, strata_timeline *timeline);

/* Keeps an extent in the cache for its timeline, making room, or frees it into the heap. The cache is then in the
 * handle's slot. */
void pool_stream_cache_keep_slow(pool *self, pool_thread_cache *local, strata_timeline *timeline, CUstream handle,
                                 uint32_t slot);

/* Frees the large extent of the thread's cache for a stream, or with `all` everything, into the heap. True if there was
 * any. */
bool pool_stream_cache_give(pool *self, pool_thread_cache *local, const strata_timeline *timeline, bool all);

/* Empties all thread caches into the heap. map_lock is held. */
void pool_thread_caches_flush(pool *self);

/* Frees the caches; no call is in flight. */
void pool_thread_caches_destroy(pool *self);

#endif
