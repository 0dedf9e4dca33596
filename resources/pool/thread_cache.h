/* What a thread keeps for itself: pieces that were freed on a stream and wait for no other, ready for a request of the
 * same size on the same stream. Taking and keeping one touches nothing that another thread writes.
 *
 * A cache is of one timeline. Whoever takes a piece has found out in the same call that its stream has that timeline,
 * and then waits for nothing. That is right also where another stream had the timeline when the piece was put in: a
 * timeline goes to another stream when everything that was submitted to the first is complete, and nobody but this
 * thread, which is busy with its request, puts pieces in. The points of the pieces say what they wait for in any case,
 * and an event covers them if the stream is not known: the free has recorded it. So an allocation records none.
 *
 * A cell is a thread's; in it is a cache for each of the streams that the thread used last, and in that a list for each
 * of some sizes, the last freed first. Besides, the last freed piece that is too large to be kept for long stays until
 * the thread next asks the heap.
 *
 * When memory runs short, whoever holds the pool's growth lock empties all caches. A thread says that it is busy with
 * its cell, and only then looks whether they are being emptied; who empties them says so, and only then looks who is
 * busy (core/base/asymmetric.h). Meanwhile threads go to the heap.
 *
 * What a thread frees that another stream has seen is kept for nobody: it is bundled, pieces of one size that wait for
 * the same two streams, and a full bundle goes to the depot, where whoever needs that size takes it whole and waits
 * once for all of it. So a thread that frees what another one allocates costs both of them little more than their own
 * lists.
 *
 * A cell outlives its thread; what is cached there goes to the next thread with that number, or back when memory runs
 * short. */
#ifndef STRATA_RESOURCES_POOL_THREAD_CACHE_H
#define STRATA_RESOURCES_POOL_THREAD_CACHE_H

#include "resources/pool/internal.h"

enum {
    POOL_STREAM_CACHES = 16, /* streams that a thread keeps memory for */
    POOL_BINS = 32,          /* sizes that it keeps of each */
    POOL_MAGAZINES = 8,      /* that a thread fills at a time */
    POOL_MAGAZINE_SIZE = 32, /* pieces in a full one */
    POOL_AHEAD = 4,          /* pieces of a bundle that are fetched before they are looked at */
    POOL_SEARCHED = 8,       /* bundles of a bucket of the depot that are looked at for one of the right size */
};

typedef struct pool_bin {
    uint64_t granules;  /* of each piece */
    strata_entry *last; /* the last one put in, and the others through below; NULL: none */
} pool_bin;

typedef struct pool_stream_cache {
    strata_timeline *timeline; /* of the stream on which the pieces were freed; held */
    uint64_t granules;         /* in bins */
    uint64_t origin;           /* of blocks made here: strata_entry_origin, without a tag */
    strata_point written;      /* a write of the stream, without its epoch */
    uint32_t
        live_blocks; /* blocks made here for the timeline's stream while it was unknown, less those that ended here */
    uint32_t large;  /* the last one freed that is too large to be kept; 0: none */
    pool_bin bins[POOL_BINS];
} pool_stream_cache;

/* Pieces of one size. The first one's points are those of all. */
typedef struct pool_magazine {
    uint32_t granules; /* of each */
    uint32_t first;    /* through chain; 0: none */
    uint32_t count;
    uint16_t writer, timeline;        /* which they wait for: where they were written last, and freed */
    strata_entry *latest[POOL_AHEAD]; /* put in, by their place modulo POOL_AHEAD */
} pool_magazine;

/* Everything but the counts is the thread's while it is busy, and whoever's empties the caches while it is not. */
typedef struct pool_thread_cache {
    _Atomic uint32_t busy;            /* written by the thread alone */
    _Atomic int64_t live_bytes;       /* allocated less freed by the thread; written by it alone, read by any */
    _Atomic uint64_t hits;            /* blocks out of its caches; the same */
    _Atomic int64_t live_beside_hits; /* other blocks, less all that it freed; the same */
    pool_stream_cache *caches[POOL_STREAM_CACHES]; /* by the timeline's number */
    pool_stream_cache
        *by_handle[POOL_STREAM_CACHES]; /* the last one used for a handle with that hash: the thread's alone */
    pool_magazine magazines[POOL_MAGAZINES];
    uint32_t rest; /* of a bundle whose first piece the thread waits for, through chain; 0: none */
} pool_thread_cache;

/* 0 for what is too much to be rounded up. */
static inline uint64_t pool_all_granules(uint64_t bytes)
{
    return (bytes + POOL_GRANULE - 1) / POOL_GRANULE;
}

static inline uint32_t pool_granules(uint64_t bytes)
{
    const uint64_t granules = pool_all_granules(bytes);
    return granules < UINT32_MAX ? (uint32_t)granules : 0; /* 0: no cache keeps so much */
}

static inline pool_bin *pool_bin_of(pool_stream_cache *cache, uint64_t granules)
{
    return &cache->bins[(uint32_t)granules * UINT32_C(0x9e3779b1) >> 27];
}

_Static_assert(POOL_BINS == 1 << (32 - 27), "the hash chooses among all bins");

static inline bool pool_thread_cache_enter(const pool *self, pool_thread_cache *local)
{
    atomic_store_explicit(&local->busy, 1, memory_order_relaxed);
    strata_light_barrier();
    if (__builtin_expect(!atomic_load_explicit(&self->flushing, memory_order_acquire), 1))
        return true;
    atomic_store_explicit(&local->busy, 0, memory_order_release);
    return false;
}

/* The same for who has another way where it fails: then it may be tried in the other form. Calls nobody. */
static inline bool pool_thread_cache_try_enter(const pool *self, pool_thread_cache *local)
{
    atomic_store_explicit(&local->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(!atomic_load_explicit(&strata_barriers_are_full, memory_order_relaxed) &&
                             !atomic_load_explicit(&self->flushing, memory_order_acquire),
                         1))
        return true;
    atomic_store_explicit(&local->busy, 0, memory_order_release);
    return false;
}

static inline void pool_thread_cache_leave(pool_thread_cache *local)
{
    atomic_store_explicit(&local->busy, 0, memory_order_release);
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

/* The thread's cache for the known stream behind a handle, if it stands in that handle's place: its timeline says
 * whether it still is that stream's, so that the stream need not be looked for. */
static inline pool_stream_cache *pool_stream_cache_at(pool_thread_cache *local, CUstream handle)
{
    pool_stream_cache *cache = *pool_stream_cache_slot(local, handle);
    return __builtin_expect(cache && strata_timeline_is_late(cache->timeline, handle), 1) ? cache : NULL;
}

/* The same for an unknown stream, which the driver is asked about: its capture and its id. */
static inline pool_stream_cache *pool_stream_cache_of_unknown_at(pool_thread_cache *local, CUstream handle,
                                                                 uint64_t *id)
{
    pool_stream_cache *cache = *pool_stream_cache_slot(local, handle);
    *id = cache ? atomic_load_explicit(&cache->timeline->stream_id, memory_order_acquire) : 0;
    return *id && strata_stream_has_id(handle, *id) ? cache : NULL;
}

/* Counts what begins or ends, for what a thread has live. The cell is the caller's. */
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

/* The same for a thread that may have no cell: there are no more numbers, or there is no host memory. */
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

/* The calling thread's cell; NULL: it has none. */
static inline pool_thread_cache *pool_thread_cache_self(pool *self)
{
    return strata_per_thread_self(&self->thread_caches, strata_thread_current);
}

/* The cell that the calling thread has used before, or NULL. */
static inline pool_thread_cache *pool_thread_cache_if_present(const pool *self)
{
    const strata_thread *thread = strata_thread_current;
    return __builtin_expect(thread != NULL, 1) ? thread->cells[self->thread_caches.number] : NULL;
}

/* The thread's cache for a known stream, put in the handle's place; NULL: there is none, or events are recorded early
 * there. */
static inline pool_stream_cache *pool_stream_cache_find(pool_thread_cache *local, const strata_timeline *timeline,
                                                        CUstream handle)
{
    pool_stream_cache *cache = timeline->early ? NULL : pool_stream_cache_of(local, timeline);
    if (cache)
        *pool_stream_cache_slot(local, handle) = cache;
    return cache;
}

/* The last piece put into the bin for that size, taken out; NULL: there is none. The cell is the caller's. */
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

/* Puts a piece into the bin for its size; false if that is not its bin now, or the cache is full. The cell is the
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

/* Takes a piece of that size out of a cache of the thread's; NULL: there is none. */
strata_entry *pool_stream_cache_take(pool *self, pool_thread_cache *local, pool_stream_cache *cache, uint64_t granules,
                                     uint32_t *slot);

/* Bundles a piece that waits for `home`, by its entry's last write, and for the stream on which it was freed, by its
 * last read; false if it needs more than a look. */
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
        if (first > write) /* of one timeline, the greater is the later */
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

/* Bundles a piece, handing over the bundle that is in its place, or gives it to the heap. */
void pool_magazine_keep_slow(pool *self, pool_thread_cache *local, const strata_timeline *timeline, uint32_t slot);

/* A bundle of that size out of the depot: its first piece; 0: none. The rest of it is the cell's then, where those who
 * empty the caches find it, or without a cell free. */
uint32_t pool_depot_take(pool *self, pool_thread_cache *local, uint32_t granules);

/* Gives that rest, which the stream comes after now, to the thread's cache for it; or, without a stream, to the heap.
 */
void pool_stream_cache_fill(pool *self, pool_thread_cache *local, strata_timeline *timeline);

/* Makes the thread's cache for a stream if none is in its place. */
void pool_stream_cache_open(pool *self, pool_thread_cache *local, strata_timeline *timeline);

/* Keeps a piece in the cache for its timeline, making room for it, or gives it to the heap. The cache then stands in
 * the handle's place. */
void pool_stream_cache_keep_slow(pool *self, pool_thread_cache *local, strata_timeline *timeline, CUstream handle,
                                 uint32_t slot);

/* Gives the large piece of the thread's cache for a stream to the heap, or with `all` everything. True if there was
 * any. */
bool pool_stream_cache_give(pool *self, pool_thread_cache *local, const strata_timeline *timeline, bool all);

/* Gives what all threads keep to the heap; growth is held. */
void pool_thread_caches_flush(pool *self);

/* Frees the caches; no call is in flight. */
void pool_thread_caches_destroy(pool *self);

#endif
