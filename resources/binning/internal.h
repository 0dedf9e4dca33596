/* `fixed` and `binning`: bins of equal blocks, cut from chunks of the layer below.
 *
 *     chunk (a block of the layer below)
 *     | slot | slot  | slot    | slot    | slot | slot  | rest |
 *       live   clean   retired   retired   live   clean
 *
 * A slot is clean, live, or retired: freed, with points that may not be complete. A retired block keeps its entry and
 * its uses' points.
 *
 * A bin has for each stream a free list of retired slots that wait for that stream only, which reuses the newest
 * without a wait. Slots that wait for several streams are in the mixed list, clean slots in their chunks.
 *
 * A request tries: its stream's list; clean slots; slots known complete; slots complete after a poll; the oldest slot
 * of the longest list, with a wait; a new chunk.
 *
 * Blocks have entries that lower layers do not know. Chunks are blocks of the layer below in quarantine, unseen by
 * layers above, allocated and freed on an internal stream. */
#ifndef STRATA_RESOURCES_BINNING_INTERNAL_H
#define STRATA_RESOURCES_BINNING_INTERNAL_H

#include "core/base/counters.h"
#include "core/stack/stack.h"
#include "core/streams/timeline.h"

enum {
    BINNING_VALUES = 12,
    BINS_MOST = 64,
    BIN_GRANULE = 256,           /* of sizes; block alignment */
    BIN_SLOTS_MOST = 1 << 20,    /* per chunk */
    BIN_LISTS_PER_ARRAY = 64,    /* for adjacent timeline numbers */
    BIN_SCAN_LIMIT = 256,        /* slots of the mixed list that one look without a wait checks */
    BIN_LEAST_CHUNK = 2 << 20,   /* default bytes of a chunk, */
    BIN_LEAST_SLOTS = 8,         /* at least this many slots */
    BIN_TRIES_TO_GIVE_BACK = 16, /* tries at the layer's destruction */
};

struct bin;
struct bin_chunk;

/* A slot is written by its owner alone: its live block, its list, its chunk (clean), or the thread that took it. */
typedef struct bin_slot {
    struct bin_slot *older, *newer; /* in a free list, guarded by its lock; `older` also if clean */
    struct bin_chunk *chunk;        /* constant */
    strata_point freed;             /* retired: the freeing stream's point; 0: none */
    _Atomic uint32_t entry_slot;    /* of its block; 0: clean. Read by lookups by address */
    bool deferred;                  /* its free waits for a capture's end, and is counted */
} bin_slot;

typedef struct bin_chunk {
    struct bin *bin;                  /* constant, as are block, taken, count */
    strata_block block;               /* the lower layer's view; quarantine id */
    uint64_t taken;                   /* live bytes that the owner below counts for it */
    _Atomic strata_point point;       /* of its allocation; 0: complete; any thread */
    uint32_t count;                   /* slots */
    struct bin_chunk *before, *after; /* guarded by the bin's lock; `after` alone in empty chunks */
    bin_slot *clean;                  /* linked by `older`; guarded by the bin's lock, as is the count */
    uint32_t clean_count;
    bool orphan; /* not yet given back; its slots are never used */
    bin_slot slots[];
} bin_chunk;

/* Retired slots, the oldest first. */
typedef struct bin_free_list {
    _Alignas(64) strata_spin lock;
    _Atomic uint32_t count; /* written under the lock, read by any thread */
    bin_slot *oldest, *newest;
    struct bin_free_list *next; /* constant once linked */
    uint16_t timeline;          /* 0: mixed list; constant */
    _Atomic bool made;          /* in the bin's list of lists; set once */
} bin_free_list;

/* Incremented in this order, read in reverse, as in resources/owners/pending_frees.c. */
enum { BIN_ALLOCATED, BIN_FREED, BIN_ENDED };

typedef struct bin {
    size_t size; /* of a block; constant, as are the next two */
    size_t chunk_bytes;
    uint32_t slots; /* per chunk */
    strata_counters counters;
    _Atomic(bin_free_list *) lists[STRATA_TIMELINE_LIMIT / BIN_LISTS_PER_ARRAY]; /* made on demand, never moved */
    _Atomic(bin_free_list *) first_list;                                         /* list of those made */
    bin_free_list mixed;
    strata_spin lock;
    bin_chunk *first_chunk, *last_chunk; /* chunks in use, those with clean slots first; guarded by lock */
    bin_chunk *empty;                    /* clean chunks and orphans; guarded by lock */
    _Atomic uint32_t chunks;             /* with orphans; written under the lock, read by any thread */
    _Atomic bool growing;                /* a thread allocates a chunk; any thread */
    _Atomic uint32_t checked_out;        /* threads that own retired slots; any thread */
    _Atomic uint32_t scans;              /* threads that scan all lists, which holds up checkouts; any thread */
    _Atomic uint64_t from_clean, waited; /* blocks not from the stream's own list; any thread, relaxed */
} bin;

/* In an entry. Of an own block: generation and slot; of a chunk: 0 and the chunk; of a lower layer's block: zeros.
 * Written before the block is visible; atomic: a stale id may read them while the entry is reused. */
typedef struct bin_bytes {
    _Atomic uint64_t made;
    _Atomic(void *) where;
} bin_bytes;

typedef struct binning {
    strata_resource resource;
    bin **bins; /* ascending sizes; constant, as are the next members */
    size_t bin_count;
    uint8_t first_bin[65]; /* by bits of (bytes - 1) */
    bool refuse_larger;
    bool pass_all;  /* sanitizer mode */
    strata_tag tag; /* of chunks */

    strata_lock making;
    strata_timeline *timeline; /* written before `stream` */
    _Atomic(CUstream) stream;  /* for chunks; made on demand under `making` */

    strata_spin index_lock;
    bin_chunk **index; /* chunks except orphans, by address; guarded by index_lock, as are the next two */
    size_t indexed, index_room;

    /* Sums over chunks; these and the next: any thread, relaxed. */
    _Atomic uint64_t taken_bytes, slot_bytes;
    _Atomic uint64_t grown, given_back, passed;
} binning;

static inline bin_bytes *bin_bytes_in(const strata_resource *layer, const strata_entry *entry)
{
    return (bin_bytes *)(void *)((char *)(uintptr_t)entry + layer->block_offset);
}

static inline CUdeviceptr bin_address(const bin_slot *slot)
{
    const bin_chunk *chunk = slot->chunk;
    return chunk->block.address + (CUdeviceptr)(slot - chunk->slots) * chunk->bin->size;
}

static inline strata_entry *bin_entry(const binning *self, const bin_slot *slot)
{
    return strata_table_entry(strata_resource_table(&self->resource),
                              atomic_load_explicit(&slot->entry_slot, memory_order_relaxed));
}

/* ---- slots.c ---- */

/* Makes a bin without chunks. `size`: a multiple of BIN_GRANULE. NULL without host memory. */
bin *bin_make(size_t size, size_t chunk_bytes);
void bin_destroy(bin *self);

/* A stream's free list; NULL: it has none yet. */
static inline bin_free_list *bin_free_list_of(bin *self, uint16_t timeline)
{
    bin_free_list *lists = atomic_load_explicit(&self->lists[timeline / BIN_LISTS_PER_ARRAY], memory_order_acquire);
    bin_free_list *list = lists ? &lists[timeline % BIN_LISTS_PER_ARRAY] : NULL;
    return list && atomic_load_explicit(&list->made, memory_order_acquire) ? list : NULL;
}

/* As bin_free_list_of, but makes a missing list. Without host memory: the mixed one, which fits every slot. */
bin_free_list *bin_free_list_make(bin *self, uint16_t timeline);

static inline bool bin_free_list_is_empty(const bin_free_list *list)
{
    return atomic_load_explicit(&list->count, memory_order_relaxed) == 0;
}

static inline void bin_free_list_add(bin_free_list *list, int by)
{
    uint32_t count = atomic_load_explicit(&list->count, memory_order_relaxed);
    atomic_store_explicit(&list->count, count + (uint32_t)by, memory_order_relaxed);
}

/* Appends a slot as the newest. The lock is held. */
static inline void bin_free_list_link_newest(bin_free_list *list, bin_slot *slot)
{
    slot->older = list->newest;
    slot->newer = NULL;
    *(list->newest ? &list->newest->newer : &list->oldest) = slot;
    list->newest = slot;
    bin_free_list_add(list, 1);
}

static inline void bin_free_list_put(bin_free_list *list, bin_slot *slot)
{
    strata_spin_take(&list->lock);
    bin_free_list_link_newest(list, slot);
    strata_spin_release(&list->lock);
}

static inline bin_slot *bin_free_list_take(bin_free_list *list)
{
    strata_spin_take(&list->lock);
    bin_slot *slot = list->newest;
    if (__builtin_expect(slot != NULL, 1)) {
        list->newest = slot->older;
        *(slot->older ? &slot->older->newer : &list->oldest) = NULL;
        bin_free_list_add(list, -1);
    }
    strata_spin_release(&list->lock);
    return slot;
}

bin_slot *bin_free_list_take_oldest(bin_free_list *list);
void bin_free_list_put_oldest(bin_free_list *list, bin_slot *slot);

/* Brackets ownership of retired slots that the thread may put back or has to finish; waits for all frees include them.
 * Begin waits for scans. A hit needs no bracket. */
void bin_checkout_begin(bin *self);
static inline void bin_checkout_end(bin *self)
{
    atomic_fetch_sub_explicit(&self->checked_out, 1, memory_order_release);
}

/* Visits each point that a retired slot may wait for, until a visit fails. */
strata_status bin_slot_visit(const binning *layer, const bin_free_list *of, const bin_slot *slot,
                             strata_status (*visit)(strata_point point, void *data), void *data);

/* Adds the points of retired slots that are not known to be complete. */
void bin_sum_frees(const binning *layer, bin *self, struct strata_stream_sums *sums);

/* The longest free list; NULL if all are empty. */
bin_free_list *bin_longest_free_list(bin *self);

/* Takes a clean slot, of a used chunk if possible; NULL: none. Puts one back. */
bin_slot *bin_take_clean(bin *self);
void bin_put_clean(bin *self, bin_slot *slot);

/* Enters a chunk in its bin's lists; takes an empty chunk or orphan out of them, or NULL. */
void bin_enter_chunk(bin *self, bin_chunk *chunk);
bin_chunk *bin_take_empty_chunk(bin *self);

/* Ends a slot's block as finished; the slot becomes clean. */
void bin_finish(const binning *layer, bin *self, bin_slot *slot);

/* Finishes slots known complete, with `poll` after a poll; never waits. Returns bytes. */
size_t bin_sweep(const binning *layer, bin *self, bool poll);

/* Waits for all earlier frees and finishes them, perhaps with other threads. Adds the bytes it finished. */
strata_status bin_wait(const binning *layer, bin *self, size_t *bytes);

/* Polls every stream that retired slots wait for, finishes what is complete; never waits. Returns bytes. */
size_t bin_poll(const binning *layer, bin *self);

void bin_count(const bin *self, size_t *live, size_t *retired);

/* ---- chunks.c ---- */

/* Gets a chunk. *out: one of its clean slots, owned by the caller. */
strata_status bin_grow(binning *layer, bin *self, const strata_request *request, bin_slot **out);

/* Gives empty chunks back, up to `enough` bytes; *given: bytes. Errors: the lower layer's. */
strata_status bins_give_back(binning *self, size_t enough, size_t *given);

/* Whether freeing could cure `status`; `why` is the lower layer's error. */
bool bin_wants_room(const binning *self, strata_status status, const strata_error *why, size_t bytes);

/* How hard a request tries to get chunks back when there is no memory below: it polls first, then waits. */
typedef enum bin_effort { BIN_POLL, BIN_WAIT, BIN_EFFORTS } bin_effort;

/* Polls or waits, then gives empty chunks back, up to `enough` bytes; *given: bytes. */
void bins_make_room(binning *self, bin_effort effort, size_t enough, size_t *given);

/* give_back of the ops table: empty chunks, for other stacks. */
uint64_t binning_give_back(strata_resource *resource, uint64_t bytes, bool may_wait);

/* Every slot is clean. Gives all chunks back, waits for that, and destroys the stream. */
void bins_close(binning *self);

/* Finds the live block at an address; *of_chunk: a chunk has the address. */
bool bins_find(binning *self, CUdeviceptr address, bool *of_chunk, strata_block *out);

/* ---- operations.c ---- */

extern const strata_resource_ops strata_fixed_ops, strata_binning_ops;

void binning_destroy(strata_resource *resource);

/* ---- report.c ---- */

extern const strata_value binning_values[BINNING_VALUES];
strata_status binning_get_value(strata_resource *resource, size_t which, uint64_t *value);
void binning_describe(strata_resource *resource, strata_emitter *to);
strata_status binning_usage(strata_resource *resource, strata_usage *usage);

#endif
