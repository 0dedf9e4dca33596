/* The pool's data.
 *
 *     thread caches   each thread: extents freed on a stream, ready for that stream        thread_cache.*
 *     heap            extents of the address range: free ones by stream, holes             extents.*, pending.*
 *     chunk store     physical memory, mapped or fixed                                     chunks*, remap.*
 *
 * Locks, outermost first. oom_lock: held by the one thread that waits for the device because memory ran out; other
 * threads that would have to wait meet there. map_lock: held while memory is mapped, remapped or returned and while
 * thread caches are emptied; driver calls happen under it, but no waits for the device. lock: guards the heap, for
 * moments; no driver call happens under it. A thread's cache has no lock: see thread_cache.h. */
#ifndef STRATA_RESOURCES_POOL_INTERNAL_H
#define STRATA_RESOURCES_POOL_INTERNAL_H

#include "core/base/asymmetric.h"
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
    POOL_KEEP_NOTHING = 1, /* release threshold that keeps nothing; 0 is no threshold */
};

/* Bytes and number of live blocks. */
typedef struct pool_live {
    int64_t bytes, blocks;
} pool_live;

typedef struct pool_counts {
    _Atomic uint64_t misses;          /* requests that no cache served; any thread, relaxed, like all counts */
    _Atomic uint64_t steals;          /* misses served by memory of other streams that had to be waited for */
    _Atomic uint64_t chunks_made;     /* chunks made */
    _Atomic uint64_t chunks_remapped; /* chunks remapped */
    _Atomic uint64_t polls;           /* polls of streams */
    _Atomic uint64_t flushes;         /* of all thread caches */
    _Atomic uint64_t released;        /* bytes returned to the device */
    _Atomic uint64_t decayed;         /* bytes of these returned by decay */
} pool_counts;

/* Unused memory goes back over time: decay.c. */
typedef struct pool_decay {
    _Atomic uint64_t window; /* nanoseconds, 0: never; written under map_lock, read by any thread, relaxed */
    _Atomic uint64_t due;    /* end of the window, monotonic; as window */
    _Atomic uint64_t quota;  /* bytes still to be returned for the last window; as window */
    uint32_t next;           /* number of the next chunk to check; guarded by map_lock */
    struct pool_use_bits
        *_Atomic bits; /* what was used in the window; NULL: no window yet. Written under map_lock, then permanent */
} pool_decay;

/* Recent remapping: overhead.c. */
typedef struct pool_remap_window {
    uint64_t began;     /* nanoseconds, monotonic; later starts forget more */
    uint64_t remapping; /* nanoseconds of these spent remapping */
    uint64_t bytes;     /* bytes remapped */
    uint64_t seen;      /* end of the counted time, with counts.misses then */
    uint64_t misses_seen;
} pool_remap_window;

/* Overhead earned by remapping and polling: overhead.c. Guarded by map_lock. */
typedef struct pool_adaptive_overhead {
    double by_remapping, by_polling; /* shares of the peak; 0: none */
    pool_remap_window remap_window;
    uint64_t risen_to;       /* the highest live bytes, roughly */
    uint64_t polls_in_need;  /* polls because nothing fitted, since they were last weighed */
    uint64_t misses_weighed; /* counts.misses at that time */
} pool_adaptive_overhead;

typedef struct pool {
    strata_resource resource;
    strata_device *device;
    uint64_t cache_granules; /* granules that a thread caches for a stream; constant */
    _Atomic uint64_t limit;  /* bytes that may be reserved; 0: only the device's limit */
    struct {
        uint64_t chunk, overhead;
        pool_sharing sharing;
    } given;              /* options whose defaults depend on the source; constant */
    double overhead;      /* share of the peak of live bytes that may be reserved above it before memory is remapped or
                             returned; constant once started */
    uint64_t chunk_bytes; /* largest chunk made for several requests; constant once started */
    strata_export_type export_type;      /* constant */
    bool follows, takes_finished, waits; /* reuse policies; constant */
    uint64_t initial_bytes;              /* constant */
    strata_per_thread thread_caches;     /* pool_thread_cache */
    _Atomic bool flushing;               /* caches are being emptied: written under map_lock, read by any thread */
    pool_counts counts;
    _Atomic int64_t live_bytes_elsewhere, live_blocks_elsewhere; /* of threads without a cache; any thread */
    strata_counters deferred;                                    /* bytes whose free waits for the end of a capture */
    strata_lock oom_lock, map_lock;
    pool_chunk_store store;                 /* guarded by map_lock, except what is written before the first request */
    _Atomic(struct strata_thread *) ticket; /* thread that requests fixed chunks from the source; see upstream.c */
    pool_decay decay;                       /* members have their own rules */
    _Atomic uint64_t threshold;             /* bytes that stay reserved at a reap; 0: all; any thread, relaxed */
    struct strata_pool_hold *holds;         /* of chunks; guarded by map_lock */
    _Atomic uint64_t held_bytes;            /* in held chunks; written under map_lock, read by any thread */
    bool deterministic;                     /* constant */
    pool_adaptive_overhead adaptive;
    _Atomic bool polling_is_costly; /* written under map_lock, read by any thread */
    uint64_t peak_live;             /* highest live bytes seen; guarded by map_lock */
    _Atomic uint64_t peak_reserved; /* written under map_lock */
    _Atomic uint64_t reserved;      /* copy of store.reserved for any reader */
    _Alignas(64) strata_spin lock;
    pool_heap heap;
    _Atomic uint32_t depot[POOL_DEPOT]; /* magazines by size; changed under lock */
    uint32_t requests_since_poll;       /* guarded by lock */
    _Atomic bool started;               /* the heap; set under lock */
} pool;

/* What a request needs from the heap. */
typedef struct pool_need {
    const strata_stream_ref *stream;
    uint64_t bytes;     /* a multiple of POOL_GRANULE */
    uint64_t alignment; /* at least POOL_GRANULE */
} pool_need;

/* Result of a search. */
typedef enum pool_result {
    POOL_FOUND,
    POOL_NOTHING,
    POOL_FAILED, /* no host memory */
} pool_result;

/* Outcome of the steps that need the driver. */
typedef struct pool_outcome {
    CUresult result;         /* the driver's answer to `call` */
    const char *call;        /* the call that was to give memory */
    bool host;               /* no host memory */
    bool alone;              /* without memory that waits for other streams */
    uint64_t ceiling;        /* most that can be reserved, since the device has no more; 0: unknown */
    bool initial;            /* the initial size cannot be had */
    strata_error wait_error; /* why pending memory could not be waited for; SUCCESS: no such failure */
    strata_error below;      /* error of a source of fixed chunks; SUCCESS: none */
} pool_outcome;

/* Bytes that contain a suitable block at any start. */
static inline uint64_t pool_room_for(const pool_need *need)
{
    return need->bytes + need->alignment - POOL_GRANULE;
}

/* ---- limits.c ---- */

/* Most bytes that may be reserved. */
uint64_t pool_most_reserved(const pool *self);

/* Bytes that decay never returns. */
uint64_t pool_kept_bytes(const pool *self);

/* `live` bytes with overhead and a granule, saturating. */
static inline uint64_t pool_with_overhead(uint64_t live, double overhead, uint64_t granule)
{
    const double most = (double)live * (1 + overhead) + (double)granule;
    return most < 0x1p63 ? (uint64_t)most : UINT64_MAX / 2;
}

/* The initial size in whole granules, within the limit; 0: none. */
static inline uint64_t pool_initial_size(const pool *self)
{
    const uint64_t granule = self->store.granule, most = pool_most_reserved(self) / granule * granule;
    return self->initial_bytes < most ? (self->initial_bytes + granule - 1) / granule * granule : most;
}

/* Whether the initial size was never reserved, so that a smaller request must not be served without it. */
static inline bool pool_lacks_initial(const pool *self, const pool_need *need)
{
    const uint64_t initial = self->initial_bytes ? pool_initial_size(self) : 0;
    return initial > pool_room_for(need) && atomic_load_explicit(&self->peak_reserved, memory_order_relaxed) < initial;
}

/* Whether pool_lacks_initial and the device has less free: saves many calls. */
bool pool_initial_is_too_much(const pool *self, const pool_need *need);

/* Whether nearly all of the limit is reserved. */
bool pool_is_tight(const pool *self, uint64_t reserved);

static inline bool pool_is_tight_now(const pool *self)
{
    return pool_is_tight(self, atomic_load_explicit(&self->reserved, memory_order_relaxed));
}

/* Whether little is left below the limit, free or to be made. The lock is held. */
bool pool_is_scarce(const pool *self);

/* Copies store.reserved for readers. map_lock is held. */
void pool_record_reserved(pool *self);

/* Live bytes and blocks from the threads' counts; 0 if a concurrent change makes a sum negative. */
pool_live pool_live_now(const pool *self);

static inline uint64_t pool_live_bytes(const pool *self)
{
    return (uint64_t)pool_live_now(self).bytes;
}

/* The peak of live bytes with this request; pool_record_peak records it. map_lock is held. */
uint64_t pool_peak_with(const pool *self, const pool_need *need);
void pool_record_peak(pool *self, const pool_need *need);

/* Lowers the peak to what is reserved, after memory was returned. map_lock is held. */
static inline void pool_lower_peak(pool *self)
{
    if (self->peak_live > self->store.reserved)
        self->peak_live = self->store.reserved;
}

/* ---- fit.c ---- */

/* Wholly free device granules that a block at the start or at the end of a free range would touch. Only whole granules
 * can be remapped. */
typedef struct pool_touched {
    uint64_t at_start, at_end;
} pool_touched;

pool_touched pool_pages_touched(const pool *self, const strata_entry *range, uint64_t bytes);

/* Of a fit and the next larger ones, the one that touches the fewest granules. The lock is held. */
uint32_t pool_least_fragmenting(pool *self, uint32_t fit, uint64_t bytes);

/* Cuts the needed part out of an extent of the caller's; the rest becomes free. 0 without host memory: all of it is
 * free. The lock is held. */
uint32_t pool_cut_out(pool *self, uint32_t slot, const pool_need *need);

/* Takes a free extent (0: none) and cuts the needed part out of it. The lock is held. */
pool_result pool_take_fit(pool *self, const pool_need *need, uint32_t fit, uint32_t *slot);

/* Takes neighbours that suffice together and wait for no stream but `timeline` (see pool_heap_find_run). The lock is
 * held. */
pool_result pool_take_run(pool *self, const pool_need *need, uint16_t timeline, uint32_t *slot);

/* Takes free memory regardless of what it waits for: an extent, or enough neighbours. The lock is held. */
pool_result pool_take_others(pool *self, const pool_need *need, uint32_t *slot);

/* Makes the stream wait for everything that may touch an extent. After a failure the extent is free again, and
 * `outcome`, if not NULL, has the reason. */
bool pool_wait_for_extent(pool *self, const pool_need *need, uint32_t slot, pool_outcome *outcome);

/* Frees an extent of the caller's. */
static inline void pool_give_extent(pool *self, uint32_t slot)
{
    strata_spin_take(&self->lock);
    pool_heap_give(&self->heap, slot, POOL_FREE);
    strata_spin_release(&self->lock);
}

/* Whether a chunk is wholly free; *complete: no work can touch it, by what is known. The lock is held. */
bool pool_chunk_is_free(pool *self, const pool_chunk *chunk, bool *complete);

/* ---- poll.c ---- */

/* Polls all streams that free memory waits for, and processes what is complete. */
void pool_poll(pool *self);

/* As pool_poll; the stream with the number `own` only with `along`. Returns how many others there were. */
unsigned pool_poll_others(pool *self, uint16_t own, bool along);

/* As pool_poll, for the request's stream alone. */
void pool_poll_own(pool *self, const pool_need *need);

/* Whether much of the free memory waits for other streams, and the last poll is long ago: complete memory fits better
 * than what happens to be the stream's own. */
bool pool_is_time_to_poll(pool *self, const pool_need *need);

/* ---- reuse.c ---- */

/* Best fit in memory that waits for no stream but the request's. */
pool_result pool_find_own(pool *self, const pool_need *need, uint32_t *slot);

/* Memory of other streams, as the reuse policies allow. map_lock is held. */
pool_result pool_find_others(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);

/* As pool_find_others, after emptying all thread caches. Takes map_lock. */
pool_result pool_find_again(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);

/* ---- grow.c ---- */

/* New memory, remapped memory, or both. map_lock is held. It waits only if `may_wait`; then oom_lock is held. The
 * outcome is SUCCESS after POOL_NOTHING if memory was mapped and other threads took it. */
pool_result pool_grow_or_remap(pool *self, const pool_need *need, bool may_wait, pool_outcome *outcome, uint32_t *slot);

/* Memory remapped into holes, if this touches fewer than `granules` and needs no wait for the device or for map_lock.
 * No lock is held. */
pool_result pool_remap_least_fragmenting(pool *self, const pool_need *need, uint64_t granules, uint32_t *slot);

/* New memory before other streams are polled, where polling is costly. map_lock is held. */
pool_result pool_grow_ahead(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);

/* ---- upstream.c ---- */

/* For fixed chunks: memory, free or new; and returning chunks until at most `keep` bytes are reserved. No
 * lock is held. */
pool_result pool_find_fixed(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);
strata_status pool_trim_fixed(pool *self, uint64_t keep, uint64_t *bytes);

/* Returns complete chunks as long as `keep` bytes stay. */
strata_status pool_release_fixed(pool *self, uint64_t keep);

/* ---- find.c ---- */

/* An extent for a request that no cache served. It is the caller's, and waits only for its own points. Errors:
 * OUT_OF_MEMORY, OUT_OF_HOST_MEMORY, DRIVER, and those of layers below. */
strata_status pool_find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot);

/* ---- remap.c ---- */

/* Unmaps a chunk whose range was taken, when no work can touch it: waits for that with oom_lock held. map_lock is held.
 * After an error (of the wait, or DRIVER) the range is free again. */
strata_status pool_take_out(pool *self, uint32_t number, uint32_t slot);

/* ---- returning memory: release.c ---- */

/* Returns wholly free chunks to the device until at most `keep` bytes are reserved; waits for pending ones. */
strata_status pool_trim(pool *self, uint64_t keep, uint64_t *bytes);

/* Returns complete memory above the release threshold; never waits. */
strata_status pool_release(pool *self);

/* Returns a chunk that is wholly free or unmapped, and not held. Unless `may_wait` (with oom_lock held), a pending one
 * stays. map_lock is held. Errors: as pool_take_out. */
strata_status pool_give_back_chunk(pool *self, uint32_t number, bool may_wait);

/* ---- decay.c ---- */

/* Sets the window; 0: no decay. Errors: OUT_OF_HOST_MEMORY, and INVALID_VALUE for a deterministic pool. */
strata_status pool_decay_set(pool *self, uint64_t nanoseconds);

/* Returns at most `most` due chunks; none if another thread has map_lock. */
strata_status pool_decay_step(pool *self, unsigned most);

void pool_decay_try_step(pool *self);

/* For slow calls without a lock: returns some of what is due. */
static inline void pool_decay_step_if_due(pool *self)
{
    if (__builtin_expect(atomic_load_explicit(&self->decay.window, memory_order_relaxed) != 0, 0))
        pool_decay_try_step(self);
}

void pool_decay_record_range(pool *self, CUdeviceptr address, uint64_t bytes);

/* Records the use of an extent of the caller's. */
static inline void pool_decay_record(pool *self, uint32_t slot)
{
    if (__builtin_expect(atomic_load_explicit(&self->decay.window, memory_order_relaxed) == 0, 1))
        return;
    const strata_entry *entry = pool_entry(&self->heap, slot);
    pool_decay_record_range(self, pool_address_of(entry), pool_bytes_of(entry));
}

void pool_decay_destroy(pool *self);

/* ---- hold.c ---- */

/* Frees the remaining holds. */
void pool_holds_destroy(pool *self);

#endif
