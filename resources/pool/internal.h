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
#include "core/streams/use_records.h"
#include "resources/chunks/chunks.h"
#include "resources/extents/extents.h"
#include "resources/owners/out_of_memory.h"
#include "resources/pool/policy.h"

#include <strata/pool.h>

enum {
    POOL_DEPOT = 64,
    POOL_KEEP_NOTHING = 1, /* 0 is no threshold */
};

typedef struct pool_live {
    int64_t bytes, blocks;
} pool_live;

typedef struct pool_counts {
    _Atomic uint64_t misses; /* requests no cache served; written under lock; any thread, relaxed, like all counts */
    _Atomic uint64_t steals; /* misses served behind a wait */
    _Atomic uint64_t chunks_made;
    _Atomic uint64_t chunks_moved;
    _Atomic uint64_t polls;    /* queries of a stream's progress */
    _Atomic uint64_t flushes;  /* times that all thread caches were emptied */
    _Atomic uint64_t released; /* bytes returned to the device */
    _Atomic uint64_t decayed;  /* of these, by decay */
} pool_counts;

typedef struct pool_decay {
    _Atomic uint64_t window;              /* ns, 0: no decay; written under map_lock, read by any thread, relaxed */
    _Atomic uint64_t due;                 /* end of the window, monotonic ns; as window */
    _Atomic bool pending;                 /* chunks of the last window may be due; as window */
    uint32_t next;                        /* chunk to check next; guarded by map_lock */
    struct pool_use_marks *_Atomic marks; /* NULL: no window yet; written under map_lock, then permanent */
} pool_decay;

/* Which chunks a return takes: it goes on until at most `keep` bytes are reserved, and `least` bytes stay. */
typedef struct pool_release_terms {
    uint64_t keep;
    uint64_t least;
    bool may_wait; /* for unfinished work, once the complete chunks have gone */
    bool hurried;  /* chunks stay while another thread has map_lock */
} pool_release_terms;

/* What differs between memory that can be moved (release.c) and memory that stays (upstream.c). No lock is held. */
typedef struct pool_kind {
    /* As pool_give_back_chunks, for one thread at a time. */
    strata_status (*give_back)(struct pool *self, const pool_release_terms *how, uint64_t *bytes);

    /* Returns a chunk if the terms allow it and it is wholly free. Errors, which change nothing: of a wait, DRIVER,
     * those of layers below. */
    strata_status (*give_back_chunk)(struct pool *self, const pool_release_terms *how, uint32_t number);
} pool_kind;

extern const pool_kind pool_kind_moving, pool_kind_fixed;

typedef struct pool {
    strata_resource resource;
    const pool_kind *kind; /* constant once started */
    strata_device *device;
    _Atomic uint32_t keeping_threads;    /* number of those that keep or have kept memory; any thread */
    uint64_t cache_granules;             /* most that a thread caches for a stream; constant */
    _Atomic uint64_t limit;              /* bytes that may be reserved; 0: the device's */
    uint64_t chunk_bytes;                /* largest chunk for several requests; constant once started */
    bool follows, takes_finished, waits; /* reuse policies; constant */
    uint64_t initial_bytes;              /* constant */
    strata_per_thread thread_caches;     /* pool_thread_cache */
    strata_busy_gate flushing;           /* a thread empties all caches; changed under map_lock, read by any thread */
    _Alignas(64) pool_counts counts;     /* misses write here; hits read what is before */
    _Atomic int64_t live_bytes_elsewhere, live_blocks_elsewhere; /* of threads without a cache; any thread */
    strata_counters deferred;                                    /* bytes freed in an unfinished capture */
    strata_lock oom_lock, map_lock;
    pool_chunk_store store;                 /* guarded by map_lock; parts are constant once started */
    _Atomic(struct strata_thread *) ticket; /* thread that requests fixed chunks: upstream.c */
    pool_decay decay;
    _Atomic uint64_t threshold; /* bytes kept at a reap; 0: all; any thread, relaxed */
    bool deterministic;         /* constant */
    strata_pool_options given;  /* constant */
    uint64_t peers;             /* other devices that use the memory: peers.h; constant */
    pool_policy policy;
    uint64_t polls_in_need;         /* polls for want of memory since polling was last weighed; guarded by map_lock */
    uint64_t misses_weighed;        /* counts.misses when polling was last weighed; guarded by map_lock */
    _Atomic bool polling_is_costly; /* written under map_lock, read by any thread */
    _Atomic uint64_t peak_reserved; /* written under map_lock */
    _Atomic uint64_t watermark;     /* as peak_reserved, since it was set; set by any thread */
    _Atomic uint64_t reserved;      /* store.reserved for any reader */
    _Alignas(64) strata_spin lock;
    pool_heap heap;
    _Atomic uint32_t depot[POOL_DEPOT]; /* magazines by size; written under lock */
    uint32_t requests_since_poll;       /* guarded by lock, like the next two */
    uint32_t vain;        /* requests without a poll after one that found no better fit; each doubles it */
    uint32_t quiet_left;  /* requests without a poll from now on */
    _Atomic bool started; /* set under lock */
} pool;

typedef struct pool_need {
    const strata_stream_ref *stream;
    uint64_t bytes;     /* a multiple of POOL_GRANULE; of a contiguous block, the chunk's */
    uint64_t alignment; /* at least POOL_GRANULE; of a contiguous block more only if it exceeds the device's granule */
    pool_side side;
    uint64_t budget_limit; /* most bytes that the stack's budgets allow; UINT64_MAX: none */
} pool_need;

typedef enum pool_result {
    POOL_FOUND,
    POOL_NOTHING,
    POOL_FAILED, /* no host memory */
} pool_result;

typedef struct pool_outcome {
    CUresult result; /* of `call` */
    const char *call;
    bool no_host_memory;     /* host memory ran out */
    bool own_only;           /* memory of other streams is not taken */
    bool refused;            /* the device refused memory */
    uint64_t ceiling;        /* if refused: most bytes that can be reserved */
    bool initial;            /* the initial size is missing and cannot be reserved */
    strata_error wait_error; /* while waiting for memory; SUCCESS: none */
    strata_error below;      /* of an allocation of a fixed source; SUCCESS: none */
} pool_outcome;

typedef struct pool_making {
    uint64_t allowed; /* bytes that may be reserved before larger chunks are returned to make smaller ones */
    uint64_t most;    /* bytes that may be reserved at all */
} pool_making;

/* One request's way through the steps of find.c. */
typedef struct pool_search pool_search;

struct pool_search {
    pool *self;
    const pool_need *need;
    struct pool_thread_cache *local; /* NULL: none */
    pool_need limited;               /* need, with the budgets' limit */
    bool may_wait;                   /* on the host; oom_lock is held if memory is remappable */
    pool_making making;              /* set by pool_grow; `allowed` also by pool_make_contiguous */
    uint64_t made;                   /* counts.chunks_made before the last search of the heap */
    pool_outcome *outcome;
    uint32_t *slot; /* what was found */

    /* For a step without locks, which another thread's step may have made needless: `again` takes map_lock and repeats
     * the steps under it; `other_side` does so for memory of the other side. */
    pool_result (*again)(pool_search *search);
    pool_result (*other_side)(const pool_search *search);
};

/* Bytes of free memory that hold the block wherever they begin. */
static inline uint64_t pool_room_for(const pool_need *need)
{
    return need->bytes + need->alignment - POOL_GRANULE;
}

/* ---- limits.c ---- */

/* The limit; UINT64_MAX: none. */
uint64_t pool_most_reserved(const pool *self);

/* Bytes that neither decay nor a full reap returns: the release threshold or the initial size, whichever is more. */
uint64_t pool_kept_bytes(const pool *self);

static inline uint64_t pool_in_granules(const pool *self, uint64_t bytes)
{
    const uint64_t granule = self->store.granule;
    return (bytes + granule - 1) / granule * granule;
}

/* The initial size in whole granules, within the limit; 0: none. */
static inline uint64_t pool_initial_size(const pool *self)
{
    const uint64_t granule = self->store.granule, most = pool_most_reserved(self) / granule * granule;
    return self->initial_bytes < most ? pool_in_granules(self, self->initial_bytes) : most;
}

/* Whether the initial size was never reserved yet, and exceeds the request: it is then not served without it. */
static inline bool pool_lacks_initial(const pool *self, const pool_need *need)
{
    const uint64_t initial = self->initial_bytes ? pool_initial_size(self) : 0;
    return initial > pool_room_for(need) && atomic_load_explicit(&self->peak_reserved, memory_order_relaxed) < initial;
}

/* Whether the device has too little memory for the initial size that pool_lacks_initial misses. */
bool pool_initial_is_too_much(const pool *self, const pool_need *need);

/* Whether placement spares wholly free granules, which can be moved: with max_size, or where memory is preferred. */
static inline bool pool_spares_granules(const pool *self)
{
    return self->given.prefer == STRATA_POOL_PREFER_MEMORY ||
           atomic_load_explicit(&self->limit, memory_order_relaxed) != 0;
}

/* Publishes store.reserved and its peaks. map_lock is held. */
void pool_record_reserved(pool *self);

/* Bytes and blocks that live now; 0 for a sum that a concurrent change makes negative. */
pool_live pool_live_now(const pool *self);

static inline uint64_t pool_live_bytes(const pool *self)
{
    return (uint64_t)pool_live_now(self).bytes;
}

/* ---- fit.c: `lock` is held, except in pool_wait_for_extent ---- */

/* Where granules are spared, returns the extent that touches the fewest wholly free ones, among `fit` and the next
 * larger extents; elsewhere `fit`. */
uint32_t pool_least_fragmenting(pool *self, uint32_t fit, uint64_t bytes);

/* Cuts the block out of an extent of the caller's and frees the rest. 0 without host memory: all is free. */
uint32_t pool_cut_out(pool *self, uint32_t slot, const pool_need *need);

/* Takes the free extent `fit` and cuts the block out. POOL_NOTHING if it is 0, or must not be cut for this request. */
pool_result pool_take_fit(pool *self, const pool_need *need, uint32_t fit, uint32_t *slot);

/* As pool_take_fit, from free neighbours that suffice together; `timeline` as in pool_heap_find_run. */
pool_result pool_take_run(pool *self, const pool_need *need, uint16_t timeline, uint32_t *slot);

/* As pool_take_fit, from one free extent whatever it waits for; else from neighbours together. */
pool_result pool_take_others(pool *self, const pool_need *need, uint32_t *slot);

/* Makes the stream wait for an extent. On failure the extent is free, and `outcome`, which may be NULL, has the error.
 */
bool pool_wait_for_extent(pool *self, const pool_need *need, uint32_t slot, pool_outcome *outcome);

/* Makes an extent of the caller's free, or a hole. Takes lock. */
static inline void pool_give_range(pool *self, uint32_t slot, pool_state state)
{
    strata_spin_take(&self->lock);
    pool_heap_give(&self->heap, slot, state);
    strata_spin_release(&self->lock);
}

/* Returns the work that may still use the chunk's memory; POOL_IN_USE if a part is not free. */
pool_work pool_work_on_chunk(const pool *self, const pool_chunk *chunk);

/* Takes a chunk's memory out of the free lists as one extent and returns its slot; 0 if a part is in use, or has
 * unfinished work and `may_wait` is false. Takes lock. */
uint32_t pool_take_free_chunk(pool *self, const pool_chunk *chunk, bool may_wait, pool_state state);

/* ---- poll.c ---- */

/* Polls the streams that free memory waits for, but for the timeline of number `except`, and processes completed
 * extents. Returns how many it polled. */
size_t pool_poll(pool *self, uint16_t except);

/* As pool_poll, for the request's own stream alone. */
void pool_poll_own(pool *self, const pool_need *need);

/* Whether much free memory waits for other streams and the last poll is long ago. `lock` is held. */
bool pool_is_time_to_poll(pool *self, const pool_need *need);

/* Once memory has had to be moved: polls all streams if an extent that is not known to be complete would fit the
 * request much better than its own stream's and complete memory. `lock` is held, and dropped meanwhile. */
void pool_ask_for_better_fit(pool *self, const pool_need *need);

/* Sometimes sets `polling_is_costly`. map_lock is held. */
void pool_weigh_polling(pool *self);

/* ---- the steps of the search: reuse.c, grow.c; map_lock is held, except for the first two ---- */

/* Counts the miss, polls if it is time, frees the thread's large extent of the stream, then as pool_find_own. */
pool_result pool_find_first(pool_search *search);

/* Best fit in the stream's own or complete memory; pool_find_finished polls before. */
pool_result pool_find_own(pool_search *search);
pool_result pool_find_finished(pool_search *search);

/* Memory of other streams, followed or behind a wait, as the reuse policies allow. */
pool_result pool_find_others(pool_search *search);

/* New memory instead of a poll, where polling is costly. */
pool_result pool_grow_ahead(pool_search *search);

/* New memory within what is allowed; free memory that is moved, with new memory for what is missing. POOL_NOTHING with
 * SUCCESS in the outcome: memory was mapped, and other threads took it. */
pool_result pool_grow(pool_search *search);
pool_result pool_move(pool_search *search);

/* Most bytes that can be reserved: by the limit, and by what the device was found to have. */
uint64_t pool_most_to_be_had(const pool *self, const pool_outcome *outcome);

/* Enters the call scope in which chunks are made and mapped. False: the outcome has the error. */
bool pool_enter_scope(pool *self, strata_call_scope *scope, pool_outcome *outcome);

/* ---- contiguous.c ---- */

/* Bytes of the request's chunk; 0: the request takes a part of memory, as usual. */
static inline uint64_t pool_contiguous_bytes(const pool *self, uint64_t bytes)
{
    return self->given.contiguous && bytes >= self->given.contiguous ? pool_in_granules(self, bytes) : 0;
}

/* Takes a new chunk for the block alone. map_lock is held. POOL_NOTHING and POOL_FAILED as pool_grow. */
pool_result pool_make_contiguous(pool_search *search);

/* ---- refuse.c ---- */

strata_status pool_refuse(pool *self, const strata_request *request, const pool_outcome *outcome);

/* ---- fixed chunks: upstream.c; no lock is held ---- */

pool_result pool_find_fixed(pool_search *search);

/* ---- find.c ---- */

/* Serves a request that missed the caches. The extent is the caller's; its points were waited for, or are the stream's
 * own. Errors: OUT_OF_MEMORY, OUT_OF_HOST_MEMORY, DRIVER, and those of layers below. */
strata_status pool_find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot);

/* Reserves the initial size once the stack is built. If that fails, each request tries again. */
void pool_reserve_initial(pool *self);

/* ---- remap.c ---- */

/* Unmaps a chunk whose range was taken; a contiguous one only leaves its extent. Waits for its work, if any, with
 * oom_lock held; map_lock is held. After an error (of the wait, or DRIVER) the range is free. */
strata_status pool_take_out(pool *self, uint32_t number, uint32_t slot);

/* ---- formers.c; map_lock is held ---- */

/* Unmaps the former places at which no work can be left. */
void pool_unmap_formers(pool *self);

/* Waits for the work at a chunk's former places, and unmaps them. oom_lock is held, and a wait drops map_lock. In a
 * call scope. Errors: of a wait. */
strata_status pool_wait_for_formers(pool *self, uint32_t chunk);

/* As pool_wait_for_formers, for all chunks, in a call scope of its own. Returns whether any former place was unmapped.
 */
bool pool_wait_for_all_formers(pool *self);

/* ---- returning memory: release.c ---- */

/* Returns chunks by the terms, complete ones first. *bytes: how much went. Errors: of kind->give_back_chunk. */
strata_status pool_give_back_chunks(pool *self, const pool_release_terms *how, uint64_t *bytes);

/* One more than the highest chunk number. Takes map_lock. */
uint32_t pool_end_of_chunks(pool *self);

/* Returns complete chunks above the threshold; never waits. */
strata_status pool_release(pool *self);

/* give_back of the ops table: for other stacks, and after a reset of the device. */
uint64_t pool_give_back(strata_resource *resource, uint64_t bytes, bool may_wait);

/* ---- decay.c ---- */

/* Sets the window; 0: no decay. Errors: OUT_OF_HOST_MEMORY; INVALID_VALUE (deterministic pool). */
strata_status pool_decay_set(pool *self, uint64_t nanoseconds);

/* Returns at most `most` due chunks; none while another thread has map_lock. The pool has started. */
strata_status pool_decay_step(pool *self, unsigned most);

/* As pool_decay_step, for a few chunks, and without errors. */
void pool_decay_try_step(pool *self);

/* pool_decay_try_step, if there is decay: for slow calls, with no lock held. */
static inline void pool_decay_step_if_due(pool *self)
{
    if (__builtin_expect(atomic_load_explicit(&self->decay.window, memory_order_relaxed) != 0, 0))
        pool_decay_try_step(self);
}

/* Marks addresses as used in this window. */
void pool_decay_record_range(pool *self, CUdeviceptr address, uint64_t bytes);

static inline void pool_decay_record(pool *self, uint32_t slot)
{
    if (__builtin_expect(atomic_load_explicit(&self->decay.window, memory_order_relaxed) == 0, 1))
        return;
    const strata_entry *entry = pool_entry(&self->heap, slot);
    pool_decay_record_range(self, pool_address_of(entry), pool_bytes_of(entry));
}

#endif
