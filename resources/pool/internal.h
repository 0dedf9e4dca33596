/* The pool: what its parts share.
 *
 * Locks. `growth` is held while memory is mapped, moved or given back, and while threads' caches are emptied; driver
 * calls happen under it, but none that waits for the device: for that it is let go, and `patience`, outside of it, is
 * held by the one thread that waits, and by those who would have to. `lock` guards the heap, for moments, inside of
 * growth or alone; no driver call happens under it. A thread's cache has no lock: see resources/pool/thread_cache.h. */
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
    POOL_KEEP_NOTHING = 1, /* the release threshold that keeps nothing; 0 is none */
};

/* What is in blocks. */
typedef struct pool_live {
    int64_t bytes, blocks;
} pool_live;

typedef struct pool_counts {
    _Atomic uint64_t misses;   /* requests that no cache served; any thread, relaxed, like the rest: statistics */
    _Atomic uint64_t handed;   /* of those, served by memory of other streams that had to be waited for */
    _Atomic uint64_t grown;    /* frames made */
    _Atomic uint64_t moved;    /* frames that were moved */
    _Atomic uint64_t asked;    /* streams, how far they are: one for each, whatever that took */
    _Atomic uint64_t flushes;  /* of all threads' caches */
    _Atomic uint64_t released; /* bytes given back to the device, */
    _Atomic uint64_t decayed;  /* and of those, because nothing had used them for long enough */
} pool_counts;

/* Memory that nothing uses goes back to the device over time: resources/pool/decay.c. */
typedef struct pool_decay {
    _Atomic uint64_t window; /* nanoseconds, 0: never. Written under growth, read by any thread, relaxed */
    _Atomic uint64_t due;    /* when the window ends, monotonic; the same */
    _Atomic uint64_t quota;  /* bytes that are still to be given back for the last one; the same */
    uint32_t next;           /* the number behind that of the frame to look at next for it; guarded by growth */
    struct pool_use_bits *_Atomic bits; /* what was used in the window; NULL before there was one. Written under growth,
                                         and stays */
} pool_decay;

/* What memory was moved lately: resources/pool/overhead.c. */
typedef struct pool_remap_window {
    uint64_t began;  /* nanoseconds, monotonic; the more is forgotten, the later */
    uint64_t moving; /* of the nanoseconds since then, those in which memory was moved */
    uint64_t bytes;  /* that were */
    uint64_t seen;   /* until when the time is counted, and counts.misses then */
    uint64_t misses_seen;
} pool_remap_window;

/* What moving and asking came to, and what each bought: resources/pool/overhead.c. Guarded by growth. */
typedef struct pool_adaptive_overhead {
    double by_remapping, by_polling; /* slack; 0: none */
    pool_remap_window remap_window;
    uint64_t risen_to;       /* the most that ever was live, but for a little */
    uint64_t polls_in_need;  /* other streams, because nothing fitted, since that was last weighed, */
    uint64_t misses_weighed; /* and counts.misses then */
} pool_adaptive_overhead;

typedef struct pool {
    strata_resource resource;
    strata_device *device;
    uint64_t cache_granules; /* that a thread keeps for a stream; constant */
    _Atomic uint64_t limit;  /* bytes that may be reserved, 0: no limit but the device's */
    struct {
        uint64_t chunk, overhead;
        pool_sharing sharing;
    } given;         /* options that depend on where the pool stands; constant */
    double overhead; /* of what is live at most, that may be reserved beyond it before memory is moved or given back;
                     constant once it has begun */
    uint64_t chunk_bytes; /* the largest frame that is made for more than one request; constant once it has begun */
    strata_export_type export_type;      /* constant */
    bool follows, takes_finished, waits; /* reuse policies; constant */
    uint64_t initial_bytes;              /* constant */
    strata_per_thread thread_caches;     /* pool_thread_cache */
    _Atomic bool flushing;               /* caches are being emptied: written under growth, read by any thread */
    pool_counts counts;
    _Atomic int64_t live_bytes_elsewhere, live_blocks_elsewhere; /* by threads without a cell; any */
    strata_counters deferred;                                    /* bytes whose free waits for the end of a capture */
    strata_lock oom_lock, map_lock;
    pool_chunk_store store; /* guarded by growth, but for what is written before the first request */
    _Atomic(struct strata_thread *)
        ticket;                     /* who asks the source for frames that stay; see resources/pool/upstream.c */
    pool_decay decay;               /* its members say by what */
    _Atomic uint64_t threshold;     /* bytes that a reap leaves reserved, 0: all of them; any thread, relaxed */
    struct strata_pool_hold *holds; /* of frames; guarded by growth */
    _Atomic uint64_t held_bytes;    /* in frames that are held; written under growth, any thread */
    bool deterministic;             /* constant */
    pool_adaptive_overhead adaptive;
    _Atomic bool polling_is_costly; /* written under growth, read by any thread */
    uint64_t peak_live;             /* the most that was seen live, of what was served; guarded by growth */
    _Atomic uint64_t peak_reserved; /* written under growth */
    _Atomic uint64_t reserved;      /* pages.reserved, for any reader */
    _Alignas(64) strata_spin lock;
    pool_heap heap;
    _Atomic uint32_t depot[POOL_DEPOT]; /* bundles by their size; changed under lock */
    uint32_t requests_since_poll; /* requests since somebody last looked how far the streams are; guarded by lock */
    _Atomic bool started;         /* the heap; set under lock */
} pool;

/* What a thread wants of the pool beyond its cache. */
typedef struct pool_need {
    const strata_stream_ref *stream;
    uint64_t bytes;     /* a multiple of POOL_GRANULE */
    uint64_t alignment; /* at least POOL_GRANULE */
} pool_need;

/* What a look for memory came to. */
typedef enum pool_result {
    POOL_FOUND,
    POOL_NOTHING,
    POOL_FAILED, /* without host memory */
} pool_result;

/* `live` bytes and the slack beyond them, and a granule; what is more than there can be is all that there can be. */
static inline uint64_t pool_with_overhead(uint64_t live, double overhead, uint64_t granule)
{
    const double most = (double)live * (1 + overhead) + (double)granule;
    return most < 0x1p63 ? (uint64_t)most : UINT64_MAX / 2;
}

/* What came of the ways that need the driver. */
typedef struct pool_outcome {
    CUresult result;    /* its answer to the call by which memory was to be had, */
    const char *call;   /* and which that was */
    bool host;          /* there was no host memory */
    bool alone;         /* without memory that waits for other streams */
    uint64_t ceiling;   /* of what can be reserved, since the device has no more; 0: nobody knows */
    bool initial;       /* the initial size is not to be had */
    strata_error why;   /* why such memory could not be waited for, if its status is not SUCCESS */
    strata_error below; /* what a source said whose frames stay, the same */
} pool_outcome;

/* Makes a piece of the caller's free. */
static inline void pool_give_extent(pool *self, uint32_t slot)
{
    strata_spin_take(&self->lock);
    pool_heap_give(&self->heap, slot, POOL_FREE);
    strata_spin_release(&self->lock);
}

/* What a piece has to have, so that the block fits wherever it begins. */
static inline uint64_t pool_room_for(const pool_need *need)
{
    return need->bytes + need->alignment - POOL_GRANULE;
}

/* How many granules of the device that are free as a whole a block would begin to use, at the start of a free range and
 * at its end: memory can be moved by whole ones alone. */
typedef struct pool_touched {
    uint64_t at_start, at_end;
} pool_touched;

pool_touched pool_pages_touched(const pool *self, const strata_entry *range, uint64_t bytes);

/* Takes a free piece, 0 for none, and cuts out of it what is wanted. The lock is held. */
pool_result pool_take_fit(pool *self, const pool_need *need, uint32_t fit, uint32_t *slot);

/* Takes what is wanted out of free memory whatever it waits for: a piece, or neighbours that are enough together. The
 * lock is held. */
pool_result pool_take_others(pool *self, const pool_need *need, uint32_t *slot);

/* Lets the stream come after everything that may still touch a piece; if that fails the piece is free again, and the
 * attempt, if there is one, knows why. */
bool pool_wait_for_extent(pool *self, const pool_need *need, uint32_t slot, pool_outcome *outcome);

/* Asks the driver how far all streams are that free memory waits for, and finds out what of it is complete. */
void pool_poll(pool *self);

/* The same of the request's stream alone. */
void pool_poll_own(pool *self, const pool_need *need);

/* New memory for what is wanted, or memory that is moved, in whatever mixture. Growth is held. Nobody is waited for
 * unless it is `patient`: then patience is held, too. The attempt's result is SUCCESS after POOL_NOTHING if memory was
 * mapped, and others took it. */
pool_result pool_grow_or_remap(pool *self, const pool_need *need, bool may_wait, pool_outcome *outcome, uint32_t *slot);

/* Memory that is moved into voids for what is wanted, if that begins to use fewer than so many granules, and nobody is
 * to be waited for, neither on the device nor for growth. No lock is held. */
pool_result pool_remap_least_fragmenting(pool *self, const pool_need *need, uint64_t granules, uint32_t *slot);

/* New memory before anybody is asked how far other streams are, where that is costly. Growth is held. */
pool_result pool_grow_ahead(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);

/* What others have freed, with all threads' caches emptied. */
pool_result pool_find_again(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);

/* The most that may be reserved. */
uint64_t pool_most_reserved(const pool *self);

/* The initial size in whole pieces of memory, as far as the limit lets them; 0: none. */
static inline uint64_t pool_initial_size(const pool *self)
{
    const uint64_t granule = self->store.granule, most = pool_most_reserved(self) / granule * granule;
    return self->initial_bytes < most ? (self->initial_bytes + granule - 1) / granule * granule : most;
}

/* Whether that was never had, so that a request that needs less is not served without it. */
static inline bool pool_lacks_initial(const pool *self, const pool_need *need)
{
    const uint64_t initial = self->initial_bytes ? pool_initial_size(self) : 0;
    return initial > pool_room_for(need) && atomic_load_explicit(&self->peak_reserved, memory_order_relaxed) < initial;
}

/* The same, and the device has not so much free, which spares many calls. */
bool pool_initial_is_too_much(const pool *self, const pool_need *need);

/* Says that the initial size cannot be had, and why. */
strata_status pool_refuse_initial(pool *self, const strata_request *request, const pool_outcome *outcome);

/* Notes pages.reserved for any reader. Growth is held. */
void pool_record_reserved(pool *self);

/* The most that is live at a time if this is served as well; notes that it was. Growth is held. */
uint64_t pool_peak_with(const pool *self, const pool_need *need);
void pool_record_peak(pool *self, const pool_need *need);

/* Memory went back: what may be kept beside what lives is measured by what there is now. Growth is held. */
static inline void pool_forget_peak(pool *self)
{
    if (self->peak_live > self->store.reserved)
        self->peak_live = self->store.reserved;
}

/* Whether nearly all that may be reserved is, if that is so much. */
bool pool_is_tight(const pool *self, uint64_t reserved);

/* Where frames stay where they are: memory for what is wanted, free or new; what is said if there is none, by what is
 * below; and frames given back until at most `keep` bytes are reserved. No lock is held. */
pool_result pool_find_fixed(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot);
strata_status pool_refuse_fixed(pool *self, const strata_request *request, const strata_error *below);
strata_status pool_trim_fixed(pool *self, uint64_t keep, uint64_t *bytes);

/* Gives back what is complete as it is, and no frame that would leave less than `keep` bytes. */
strata_status pool_release_fixed(pool *self, uint64_t keep);

/* A piece for a request that no cache has served: from free memory, or new. It is the caller's, and waits for nothing
 * but what it still says. Errors: OUT_OF_MEMORY, OUT_OF_HOST_MEMORY, DRIVER and what is below it. */
strata_status pool_find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot);

/* Whether nothing can touch a piece of the caller's, or a free one under the lock, by what is known. */
bool pool_is_complete(const strata_entry *entry);

/* Takes a frame out of its place, whose range was taken, once nothing can touch it any more: if it is not complete that
 * is waited for, with patience held. Growth is held. Errors: what waiting can give, DRIVER; then the range is free
 * again. */
strata_status pool_take_out(pool *self, uint32_t number, uint32_t slot);

/* ---- giving memory back: resources/pool/release.c ---- */

/* Gives frames without anything in them back to the device until at most `keep` bytes are reserved; waits for what is
 * free and not complete. */
strata_status pool_trim(pool *self, uint64_t keep, uint64_t *bytes);

/* Gives back what lies free and complete above the release threshold, if there is one, and waits for nothing. */
strata_status pool_release(pool *self);

/* What is kept however long nothing uses it. */
uint64_t pool_kept_bytes(const pool *self);

/* Whether a frame lies free as a whole; *complete: nothing can touch it, by what is known. The lock is held. */
bool pool_chunk_is_free(pool *self, const pool_chunk *chunk, bool *complete);

/* Gives a frame back, if it lies free or is mapped nowhere, and is not held. Unless it is `patient`, with patience
 * held, one that is not complete stays. Growth is held. Errors: as in pool_take_out. */
strata_status pool_give_back_chunk(pool *self, uint32_t number, bool may_wait);

/* ---- over time: resources/pool/decay.c ---- */

/* Sets the window; 0: nothing is given back over time. Errors: OUT_OF_HOST_MEMORY, and INVALID_VALUE for a
 * deterministic pool. */
strata_status pool_decay_set(pool *self, uint64_t nanoseconds);

/* Gives back what is due, at most so many frames; none where another thread has growth. */
strata_status pool_decay_step(pool *self, unsigned most);

void pool_decay_try_step(pool *self);

/* For calls that are slow anyway, with no lock held: gives back some of what is due. */
static inline void pool_decay_step_if_due(pool *self)
{
    if (__builtin_expect(atomic_load_explicit(&self->decay.window, memory_order_relaxed) != 0, 0))
        pool_decay_try_step(self);
}

void pool_decay_record_range(pool *self, CUdeviceptr address, uint64_t bytes);

/* The memory of a piece of the caller's is used in this window. */
static inline void pool_decay_record(pool *self, uint32_t slot)
{
    if (__builtin_expect(atomic_load_explicit(&self->decay.window, memory_order_relaxed) == 0, 1))
        return;
    const strata_entry *entry = pool_entry(&self->heap, slot);
    pool_decay_record_range(self, pool_address_of(entry), pool_bytes_of(entry));
}

void pool_decay_destroy(pool *self);

/* ---- memory that stays where it is: resources/pool/hold.c ---- */

/* Frees the holds that are left; the pool ends. */
void pool_holds_destroy(pool *self);

/* Cuts what is wanted out of a piece that is the caller's; the rest becomes free. 0 without host memory: then all of it
 * is free again. The lock is held. */
uint32_t pool_cut_out(pool *self, uint32_t slot, const pool_need *need);

/* What is in blocks, by the threads' own counts; nothing where they are read in the middle of a change, and come out
 * negative. */
pool_live pool_live_now(const pool *self);

static inline uint64_t pool_live_bytes(const pool *self)
{
    return (uint64_t)pool_live_now(self).bytes;
}

#endif
