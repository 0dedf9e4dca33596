/* The inside of `fixed` and `binning`: bins of blocks of one size, cut from chunks of the layer below.
 *
 *     chunk (a block of the layer below)
 *     | place | place | place | place | place | place | rest |
 *       live    clean   retired retired  live    clean
 *
 * A place is clean, or its block is live, or retired: freed, with points that may not be complete. A retired block
 * keeps its entry, and the entry keeps the points of its uses; so what the place must wait for travels with it, however
 * often it changes streams.
 *
 * A bin has a list of retired places for each stream: of those that were freed there, when nothing but that stream was
 * still to be waited for. What the stream asks for comes from its own list, the newest first, and needs no wait. Places
 * that several streams have still to leave are in one list more, the mixed one. Clean places are with their chunks.
 *
 * A request looks: in its stream's list; among clean places; for retired ones that are complete, as is known, and as
 * the driver says; for the oldest retired one of the longest list, which its stream is then made to wait for; and below
 * for another chunk.
 *
 * The layer owns its blocks: they are entries of the stack's table like those of the owner at the bottom, which only
 * this layer and those above it know. Its chunks are blocks of the layers below, held in quarantine, so that nobody
 * above meets one. They are allocated and freed on a stream of the layer's own.
 *
 * slots.c has the lists, chunks.c what goes on with the layer below, operations.c the operations, options.c what the
 * two layers are made of, report.c how full they are. */
#ifndef STRATA_RESOURCES_BINNING_INTERNAL_H
#define STRATA_RESOURCES_BINNING_INTERNAL_H

#include "core/base/counters.h"
#include "core/stack/stack.h"
#include "core/streams/stream_map.h"

enum {
    BINNING_VALUES = 12,
    BINS_MOST = 64,
    BIN_GRANULE = 256,           /* of sizes, and what blocks are aligned to */
    BIN_SLOTS_MOST = 1 << 20,    /* in a chunk */
    BIN_LISTS_PER_ARRAY = 64,    /* lists of streams, by neighbouring numbers of timelines */
    BIN_SCAN_LIMIT = 256,        /* of the mixed list, at a time */
    BIN_LEAST_CHUNK = 2 << 20,   /* bytes of a chunk if nobody says how many, and no less than */
    BIN_LEAST_SLOTS = 8,         /* so many places */
    BIN_TRIES_TO_GIVE_BACK = 16, /* what nobody can try later */
};

struct bin;
struct bin_chunk;

/* Whose a place is: the one that has its block, a list, its chunk while it is clean, or a thread that took it out of
 * one of these. That one writes it. */
typedef struct bin_slot {
    struct bin_slot *older, *newer; /* in a list of retired ones, guarded by that; `older` also among clean ones */
    struct bin_chunk *chunk;        /* constant */
    strata_point freed;             /* of a retired one: what was submitted to the freeing stream; 0: nothing */
    _Atomic uint32_t entry_slot;    /* of its block's entry; 0: clean. Also read by who looks for an address */
    bool deferred;                  /* its free waits for the end of a capture, and is counted */
} bin_slot;

typedef struct bin_chunk {
    struct bin *bin;                  /* constant, like the next ones */
    strata_block block;               /* as the layer below has it, under the identity that this layer holds it by */
    uint64_t taken;                   /* bytes that the owner at the bottom counts as live for it */
    _Atomic strata_point point;       /* its allocation; 0: complete. Any thread */
    uint32_t count;                   /* places */
    struct bin_chunk *before, *after; /* guarded by the bin's lock, like the next ones; only `after` among whole ones */
    bin_slot *clean;                  /* chained by `older` */
    uint32_t clean_count;
    bool orphan; /* came to nothing and could not be given back yet: no place of it is ever handed out */
    bin_slot slots[];
} bin_chunk;

/* Retired places, the oldest first. */
typedef struct bin_free_list {
    _Alignas(64) strata_spin lock;
    _Atomic uint32_t count; /* written under the lock, read by any thread */
    bin_slot *oldest, *newest;
    struct bin_free_list *next; /* of the bin's lists; constant once it is one */
    uint16_t timeline;          /* whose it is, 0: the mixed one; the same */
    _Atomic bool made;          /* it is one; set once */
} bin_free_list;

/* Counted in this order and read in the opposite one, as in resources/owners/pending_frees.c. */
enum { BIN_ALLOCATED, BIN_FREED, BIN_ENDED };

typedef struct bin {
    size_t size;        /* of a block; constant, like the next two */
    size_t chunk_bytes; /* of a chunk */
    uint32_t slots;     /* in it */
    strata_counters counters;
    _Atomic(bin_free_list *) lists[STRATA_TIMELINE_LIMIT / BIN_LISTS_PER_ARRAY]; /* made on demand, never moved */
    _Atomic(bin_free_list *) first_list;                                         /* of those that were made */
    bin_free_list mixed;
    strata_spin lock;
    bin_chunk *first_chunk, *last_chunk; /* guarded by lock, like the next one: those with clean places stand first */
    bin_chunk *empty;             /* those of which every place is clean, and orphans: they can be given back at once */
    _Atomic uint32_t chunks;      /* written under the lock, read by any thread; orphans too */
    _Atomic bool growing;         /* some thread asks the layer below for a chunk */
    _Atomic uint32_t checked_out; /* threads that have retired places in hand; see bin_checkout_begin. Any thread */
    _Atomic uint32_t scans;       /* those that look through the lists, while nobody begins. Any thread */
    _Atomic uint64_t from_clean, waited; /* blocks that did not come from the stream's own list; relaxed: statistics */
} bin;

/* The layer's bytes of an entry. Of one of its blocks: the generation under which it was made, and the place. Of one of
 * its chunks: 0, and the chunk. All zero: a block of the layers below. Written before the block is shown, or as the
 * chunk is taken; atomic, because a call with a stale identity may read them while the entry becomes another block's.
 */
typedef struct bin_bytes {
    _Atomic uint64_t made;
    _Atomic(void *) where;
} bin_bytes;

typedef struct binning {
    strata_resource resource;
    bin **bins; /* by ascending sizes; constant, like the next ones */
    size_t bin_count;
    uint8_t first_bin[65]; /* by the bits of a size less 1: the first bin that may do */
    bool refuse_larger;
    bool pass_all;  /* everything is passed on: in sanitizer mode */
    strata_tag tag; /* of chunks */

    strata_lock making;
    strata_timeline *timeline; /* of the next; written before it */
    _Atomic(CUstream) stream;  /* for chunks; made when first needed, under `making` */

    strata_spin index_lock;
    bin_chunk **index; /* all chunks but orphans, by their addresses, which may be any; guarded by index_lock, like the
                          next ones */
    size_t indexed, index_room;

    /* Of chunks, any thread, relaxed: added up as they come and go. */
    _Atomic uint64_t taken_bytes, slot_bytes;
    /* Any thread, relaxed: statistics. */
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

/* The retired entry of a place. */
static inline strata_entry *bin_entry(const binning *self, const bin_slot *slot)
{
    return strata_table_entry(strata_resource_table(&self->resource),
                              atomic_load_explicit(&slot->entry_slot, memory_order_relaxed));
}

/* ---- slots.c ---- */

/* A bin of blocks of `size` bytes, a multiple of BIN_GRANULE, from chunks of `chunk_bytes`. NULL without memory. */
bin *bin_make(size_t size, size_t chunk_bytes);
void bin_destroy(bin *self);

/* The list of a timeline; NULL if none was made yet. */
static inline bin_free_list *bin_free_list_of(bin *self, uint16_t timeline)
{
    bin_free_list *lists = atomic_load_explicit(&self->lists[timeline / BIN_LISTS_PER_ARRAY], memory_order_acquire);
    bin_free_list *list = lists ? &lists[timeline % BIN_LISTS_PER_ARRAY] : NULL;
    return list && atomic_load_explicit(&list->made, memory_order_acquire) ? list : NULL;
}

/* The same, made now; without host memory the mixed one, which does for every place. */
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

/* The lock is held. */
static inline void bin_free_list_link_newest(bin_free_list *list, bin_slot *slot)
{
    slot->older = list->newest;
    slot->newer = NULL;
    *(list->newest ? &list->newest->newer : &list->oldest) = slot;
    list->newest = slot;
    bin_free_list_add(list, 1);
}

/* Adds a place as the newest, and takes the newest out; NULL: there is none. */
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

/* The same at the other end. */
bin_slot *bin_free_list_take_oldest(bin_free_list *list);
void bin_free_list_put_oldest(bin_free_list *list, bin_slot *slot);

/* Brackets the time in which the calling thread has retired places in hand which it may put back, or has not finished
 * yet: who waits for all that was freed waits for that, too. Begin waits while somebody looks through the lists. A hit,
 * which puts nothing back but what it cannot have, is not bracketed. */
void bin_checkout_begin(bin *self);
static inline void bin_checkout_end(bin *self)
{
    atomic_fetch_sub_explicit(&self->checked_out, 1, memory_order_release);
}

/* Calls visit(point, data) for what a retired place has still to wait for, or more, until one fails. */
strata_status bin_slot_visit(const binning *layer, const bin_free_list *of, const bin_slot *slot,
                             strata_status (*visit)(strata_point point, void *data), void *data);

/* The longest of the lists; NULL if all are empty. */
bin_free_list *bin_longest_free_list(bin *self);

/* A clean place, of a chunk that is in use if there is one with such; and back. */
bin_slot *bin_take_clean(bin *self);
void bin_put_clean(bin *self, bin_slot *slot);

/* Enters a chunk, of which `clean_count` places are chained, and takes out one that is all clean, or an orphan; NULL:
 * there is none. */
void bin_enter_chunk(bin *self, bin_chunk *chunk);
bin_chunk *bin_take_empty_chunk(bin *self);

/* Ends a retired place's block as finished, and makes the place clean. */
void bin_finish(const binning *layer, bin *self, bin_slot *slot);

/* Finishes what is known to be complete; asks the driver first with `ask`, which never waits. Returns the bytes. */
size_t bin_sweep(const binning *layer, bin *self, bool poll);

/* Waits for all that was freed before the call, whoever waits for the same, and finishes it. Adds to *bytes what it has
 * finished itself. */
strata_status bin_wait(const binning *layer, bin *self, size_t *bytes);

/* Asks the driver about every stream that retired blocks wait for, and finishes what is complete of the oldest that
 * each list has; never waits. Returns the bytes. */
size_t bin_poll(const binning *layer, bin *self);

/* Adds what stands in the bin: `live` and `retired` blocks. */
void bin_count(const bin *self, size_t *live, size_t *retired);

/* ---- chunks.c ---- */

/* Takes a chunk from the layer below, for `request`; *out is a clean place of it that is the caller's. */
strata_status bin_grow(binning *layer, bin *self, const strata_request *request, bin_slot **out);

/* Gives chunks back of which every place is clean, until `enough` bytes; *given is how many. Errors: the first of the
 * layer below. */
strata_status bins_give_back(binning *self, size_t enough, size_t *given);

/* Whether `status` is for want of memory, and so many bytes could fit if there were room: `why` is what was said. */
bool bin_wants_room(const binning *self, strata_status status, const strata_error *why, size_t bytes);

/* How far a request goes for which there is no memory below: it asks how far the streams are, and only then waits. */
typedef enum bin_effort { BIN_POLL, BIN_WAIT, BIN_EFFORTS } bin_effort;

/* Where there is no memory below: gives back the chunks of which nothing is in use once the driver was asked, or once
 * all is done that retired places wait for. *given is how many bytes. */
void bins_make_room(binning *self, bin_effort effort, size_t *given);

/* Gives all chunks back, whose places all are clean, waits until they are free, and ends the stream. */
void bins_close(binning *self);

/* The live block that contains an address of a chunk. *of_chunk: it is one. */
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
