/* The pool's data.
 *
 *     thread caches   extents that a thread freed, ready for the same stream        thread_cache.*
 *     heap            extents of the address range: free ones by stream, holes      extents.*, pending.*
 *     chunk store     physical memory, mapped or fixed                              chunks*, remap.*
 *
 * Locks, outermost first:
 *
 *     oom_lock   held by the one thread that waits for the device because memory ran out
 *     map_lock   mapping, remapping and returning memory; emptying caches; driver calls, but no waits for the device
 *     lock       the heap, for moments; no driver call */
#ifndef STRATA_RESOURCES_POOL_INTERNAL_H
#define STRATA_RESOURCES_POOL_INTERNAL_H

#include "core/base/busy_flag.h"
#include "core/base/counters.h"
#include "core/base/per_thread.h"
#include "core/blocks/uses.h"
#include "core/stack/stack.h"
#include "core/streams/stream_map.h"
#include "resources/owners/out_of_memory.h"
#include "resources/pool/chunks.h"
#include "resources/pool/extents.h"

#include <strata/pool.h>

enum {
    POOL_DEPOT = 64,
    POOL_KEEP_NOTHING = 1, /* keeps nothing; 0 is no threshold */
};

typedef struct pool_live {
    int64_t bytes, blocks;
} pool_live;

typedef struct pool_counts {
    _Atomic uint64_t misses; /* requests that no cache served; any thread, relaxed, like all counts */
    _Atomic uint64_t steals; /* misses served behind a wait for another stream */
    _Atomic uint64_t chunks_made;
    _Atomic uint64_t chunks_remapped;
    _Atomic uint64_t polls;    /* of streams */
    _Atomic uint64_t flushes;  /* of all thread caches */
    _Atomic uint64_t released; /* bytes returned to the device */
    _Atomic uint64_t decayed;  /* of these, by decay */
} pool_counts;

/* See decay.c. */
typedef struct pool_decay {
    _Atomic uint64_t window; /* nanoseconds, 0: no decay; written under map_lock, read by any thread, relaxed */
    _Atomic uint64_t due;    /* when the window ends, monotonic nanoseconds; as window */
    _Atomic uint64_t quota;  /* bytes to be returned for the last window; as window */
    uint32_t next;           /* chunk to be checked next; guarded by map_lock */
    struct pool_use_bits *_Atomic bits; /* NULL: no window yet; written under map_lock, then permanent */
} pool_decay;

/* Recent remapping; see overhead.c. */
typedef struct pool_remap_window {
    uint64_t began;     /* monotonic nanoseconds */
    uint64_t remapping; /* nanoseconds spent remapping */
    uint64_t bytes;     /* remapped */
    uint64_t seen;      /* end of the counted time */
    uint64_t misses_seen;
} pool_remap_window;

/* See overhead.c. Guarded by map_lock. */
typedef struct pool_adaptive_overhead {
    double by_remapping, by_polling; /* shares of the peak; 0: none */
    pool_remap_window remap_window;
    uint64_t risen_to;       /* highest live bytes, roughly */
    uint64_t polls_in_need;  /* since they were last weighed */
    uint64_t misses_weighed; /* counts.misses at that time */
} pool_adaptive_overhead;

typedef struct pool {
    strata_resource resource;
    strata_device *device;
    uint64_t cache_granules; /* that a thread caches for a stream; constant */
    _Atomic uint64_t limit;  /* bytes that may be reserved; 0: the device's */
    struct {
        uint64_t chunk, overhead;
        pool_sharing sharing;
    } given;                        /* options with defaults by source; constant */
    double overhead;                /* share of the peak, reserved above it before remapping; constant once started */
    uint64_t chunk_bytes;           /* largest chunk for several requests; constant once started */
    strata_export_type export_type; /* constant */
    bool follows, takes_finished, waits; /* reuse policies; constant */
    uint64_t initial_bytes;              /* constant */
    strata_per_thread thread_caches;     /* pool_thread_cache */
    _Atomic bool flushing;               /* written under map_lock, read by any thread */
    pool_counts counts;
    _Atomic int64_t live_bytes_elsewhere, live_blocks_elsewhere; /* of threads without a cache; any thread */
    strata_counters deferred;                                    /* bytes freed in a capture that has not ended */
    strata_lock oom_lock, map_lock;
    pool_chunk_store store;                 /* guarded by map_lock; parts are constant once started */
    _Atomic(struct strata_thread *) ticket; /* thread that requests fixed chunks: upstream.c */
    pool_decay decay;
    _Atomic uint64_t threshold;     /* bytes kept at a reap; 0: all; any thread, relaxed */
    struct strata_pool_hold *holds; /* guarded by map_lock */
    _Atomic uint64_t held_bytes;    /* in held chunks; written under map_lock, read by any thread */
    bool deterministic;             /* constant */
    pool_adaptive_overhead adaptive;
    _Atomic bool polling_is_costly; /* written under map_lock, read by any thread */
    uint64_t peak_live;             /* guarded by map_lock */
    _Atomic uint64_t peak_reserved; /* written under map_lock */
    _Atomic uint64_t reserved;      /* store.reserved for any reader */
    _Alignas(64) strata_spin lock;
    pool_heap heap;
    _Atomic uint32_t depot[POOL_DEPOT]; /* magazines by size; written under lock */
    uint32_t requests_since_poll;       /* guarded by lock */
    _Atomic bool started;               /* set under lock */
} pool;

typedef struct pool_need {
    const strata_stream_ref *stream;
    uint64_t bytes;     /* a multiple of POOL_GRANULE */
    uint64_t alignment; /* at least POOL_GRANULE */
} pool_need;

typedef enum pool_result {
    POOL_FOUND,
    POOL_NOTHING,
    POOL_FAILED, /* no host memory */
} pool_result;

typedef struct pool_outcome {
    CUresult result; /* of `call` */
    const char *call;
    bool host;               /* no host memory */
    bool alone;              /* without memory of other streams */
    uint64_t ceiling;        /* most that can be reserved; 0: unknown */
    bool initial;            /* the initial size cannot be had */
    strata_error wait_error; /* of a wait for pending memory; SUCCESS: none */
    strata_error below;      /* of a source of fixed chunks; SUCCESS: none */
} pool_outcome;

/* Bytes that hold the block at any start. */
static inline uint64_t pool_room_for(const pool_need *need)
{
    return need->bytes + need->alignment - POOL_GRANULE;
}

/* ---- limits.c ---- */

uint64_t pool_most_reserved(const pool *self);

/* What neither decay nor a full reap returns. */
uint64_t pool_kept_bytes(const pool *self);

/* Saturates. */
static inline uint64_t pool_with_overhead(uint64_t live, double overhead, uint64_t granule)
{
    const double most = (double)live * (1 + overhead) + (double)granule;
    return most < 0x1p63 ? (uint64_t)most : UINT64_MAX / 2;
}

/* Rounds up to whole granules. */
static inline uint64_t pool_in_granules(const pool *self, uint64_t bytes)
{
    const uint64_t granule = self->store.granule;
    return (bytes + granule - 1) / granule * granule;
}

/* In whole granules, within the limit; 0: none. */
static inline uint64_t pool_initial_size(const pool *self)
{
    const uint64_t granule = self->store.granule, most = pool_most_reserved(self) / granule * granule;
    return self->initial_bytes < most ? pool_in_granules(self, self->initial_bytes) : most;
}

/* Whether the initial size was never reserved: then no request is served without it. */
static inline bool pool_lacks_initial(const pool *self, const pool_need *need)
{
    const uint64_t initial = self->initial_bytes ? pool_initial_size(self) : 0;
    return initial > pool_room_for(need) && atomic_load_explicit(&self->peak_reserved, memory_order_relaxed) < initial;
}

/* Whether the device cannot give the missing initial size. */
bool pool_initial_is_too_much(const pool *self, const pool_need *need);

bool pool_is_tight(const pool *self, uint64_t reserved);

static inline bool pool_is_tight_now(const pool *self)
{
    return pool_is_tight(self, atomic_load_explicit(&self->reserved, memory_order_relaxed));
}

/* Whether little is left below the limit. `lock` is held. */
bool pool_is_scarce(const pool *self);

/* map_lock is held. */
void pool_record_reserved(pool *self);

/* A concurrent change can make a sum negative: then 0. */
pool_live pool_live_now(const pool *self);

static inline uint64_t pool_live_bytes(const pool *self)
{
    return (uint64_t)pool_live_now(self).bytes;
}

/* With this request. map_lock is held, as for the next two. */
uint64_t pool_peak_with(const pool *self, const pool_need *need);
void pool_record_peak(pool *self, const pool_need *need);

/* After memory was returned. */
static inline void pool_lower_peak(pool *self)
{
    if (self->peak_live > self->store.reserved)
        self->peak_live = self->store.reserved;
}

/* ---- fit.c: `lock` is held, except in pool_wait_for_extent ---- */

/* Wholly free granules of the device that a block at the start or the end of a free range touches. Only such granules
 * can be remapped. */
typedef struct pool_touched {
    uint64_t at_start, at_end;
} pool_touched;

pool_touched pool_pages_touched(const pool *self, const strata_entry *range, uint64_t bytes);

/* Of a fit and the next larger ones, the one that touches the fewest granules. */
uint32_t pool_least_fragmenting(pool *self, uint32_t fit, uint64_t bytes);

/* Cuts the block out of an extent of the caller's and frees the rest. 0 without host memory: all of it is free. */
uint32_t pool_cut_out(pool *self, uint32_t slot, const pool_need *need);

/* Cuts the block out of a free extent. `fit` may be 0. */
pool_result pool_take_fit(pool *self, const pool_need *need, uint32_t fit, uint32_t *slot);

/* Takes neighbours that suffice together; `timeline` as in pool_heap_find_run. */
pool_result pool_take_run(pool *self, const pool_need *need, uint16_t timeline, uint32_t *slot);

/* An extent or neighbours, whatever they wait for. */
pool_result pool_take_others(pool *self, const pool_need *need, uint32_t *slot);

/* Makes the stream wait for all points of an extent. If that fails, the extent is freed, and `outcome`, which may be
 * NULL, has the error. */
bool pool_wait_for_extent(pool *self, const pool_need *need, uint32_t slot, pool_outcome *outcome);

/* Takes lock. */
static inline void pool_give_extent(pool *self, uint32_t slot)
{
    strata_spin_take(&self->lock);
    pool_heap_give(&self->heap, slot, POOL_FREE);
    strata_spin_release(&self->lock);
}

/* Whether a chunk is wholly free. *complete: no work can touch it, by what is known. */
bool pool_chunk_is_free(pool *self, const pool_chunk *chunk, bool *complete);

/* ---- poll.c ---- */

/* Polls the streams that free memory waits for, and processes completed extents. */
void pool_poll(pool *self);

/* As pool_poll, but `own` is polled only with `with_own`. Returns the number of others. */
unsigned pool_poll_others(pool *self, uint16_t own, bool with_own);

void pool_poll_own(pool *self, const pool_need *need);

/* Whether much of the free memory waits for other streams and the last poll is long ago. */
bool pool_is_time_to_poll(pool *self, const pool_need *need);

/* ---- reuse.c ---- */

/* Best fit in memory that waits for no other stream. */
pool_result pool_find_own(pool *self, const pool_need *need, uint32_t *slot);

/* Memory of other streams, by the reuse policies. map_lock is held. */
pool_result pool_find_others(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);

/* As pool_find_others, after emptying all thread caches. Takes map_lock. */
pool_result pool_find_again(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);

/* ---- grow.c ---- */

/* New memory, remapped memory, or both. map_lock is held, with `may_wait` oom_lock too; no wait without it. SUCCESS in
 * the outcome of POOL_NOTHING: memory was mapped, and other threads took it. */
pool_result pool_grow_or_remap(pool *self, const pool_need *need, bool may_wait, pool_outcome *outcome, uint32_t *slot);

/* Remaps memory into holes if that touches fewer than `granules` granules. Does not wait, neither for the device nor
 * for map_lock. */
pool_result pool_remap_least_fragmenting(pool *self, const pool_need *need, uint64_t granules, uint32_t *slot);

/* New memory instead of a poll, where polling is costly. map_lock is held. */
pool_result pool_grow_ahead(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);

/* ---- fixed chunks: upstream.c; no lock is held ---- */

pool_result pool_find_fixed(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);
strata_status pool_trim_fixed(pool *self, uint64_t keep, uint64_t *bytes);

/* Returns complete chunks while at least `keep` bytes stay. */
strata_status pool_release_fixed(pool *self, uint64_t keep);

/* ---- find.c ---- */

/* Serves a request that no cache served. The extent is the caller's; its points were waited for, or are the stream's
 * own. Errors: OUT_OF_MEMORY, OUT_OF_HOST_MEMORY, DRIVER, and those of layers below. */
strata_status pool_find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot);

/* ---- remap.c ---- */

/* Unmaps a chunk whose range was taken. Waits for its work, if any, with oom_lock held; map_lock is held. After an
 * error (of the wait, or DRIVER) the range is free again. */
strata_status pool_take_out(pool *self, uint32_t number, uint32_t slot);

/* ---- returning memory: release.c ---- */

/* Returns wholly free chunks until at most `keep` bytes are reserved; waits for pending ones. */
strata_status pool_trim(pool *self, uint64_t keep, uint64_t *bytes);

/* Returns complete chunks above the release threshold; never waits. */
strata_status pool_release(pool *self);

/* Returns a chunk if it is wholly free or unmapped, and not held; pending ones only with `may_wait` and oom_lock.
 * map_lock is held. Errors: as pool_take_out. */
strata_status pool_give_back_chunk(pool *self, uint32_t number, bool may_wait);

/* ---- decay.c ---- */

/* 0: no decay. Errors: OUT_OF_HOST_MEMORY, and INVALID_VALUE for a deterministic pool. */
strata_status pool_decay_set(pool *self, uint64_t nanoseconds);

/* Returns at most `most` due chunks; none if map_lock is taken. */
strata_status pool_decay_step(pool *self, unsigned most);

void pool_decay_try_step(pool *self);

/* For slow calls; no lock is held. */
static inline void pool_decay_step_if_due(pool *self)
{
    if (__builtin_expect(atomic_load_explicit(&self->decay.window, memory_order_relaxed) != 0, 0))
        pool_decay_try_step(self);
}

void pool_decay_record_range(pool *self, CUdeviceptr address, uint64_t bytes);

static inline void pool_decay_record(pool *self, uint32_t slot)
{
    if (__builtin_expect(atomic_load_explicit(&self->decay.window, memory_order_relaxed) == 0, 1))
        return;
    const strata_entry *entry = pool_entry(&self->heap, slot);
    pool_decay_record_range(self, pool_address_of(entry), pool_bytes_of(entry));
}

void pool_decay_destroy(pool *self);

/* ---- hold.c ---- */

void pool_holds_destroy(pool *self);

#endif
