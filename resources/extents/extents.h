/* The pool's address space: adjacent extents.
 *
 *     | taken | free, of A | taken | free, complete | hole .......... | taken | free, of A and B | hole ...
 *
 *     taken   a block lives in it, or a thread owns it
 *     free    in a tree: complete, of the one stream that it waits for, or multi-stream
 *     hole    addresses without memory
 *
 * There is one range for each side, and one for each fixed or contiguous chunk. An extent is an entry of the stack's
 * table: making a block of it copies nothing.
 *
 * Neighbours of one tree are joined at once, of different trees only for a request that takes them: a joined extent
 * waits for all streams of its parts.
 *
 * Guarded by the pool's lock, except a taken extent's points, chain, below and state: its owner's. */
#ifndef STRATA_RESOURCES_EXTENTS_EXTENTS_H
#define STRATA_RESOURCES_EXTENTS_EXTENTS_H

#include "core/blocks/address_index.h"
#include "resources/extents/pending.h"
#include "resources/extents/trees.h"

enum { POOL_GRANULE = 512 };

/* Small blocks live apart: one that stays would keep a large one's chunk from being moved. */
typedef enum pool_side {
    POOL_LARGE,
    POOL_SMALL,
    POOL_CONTIGUOUS, /* blocks with a chunk each (contiguous.c): the ranges are the chunks, and there are no holes */
    POOL_SIDES,
} pool_side;

typedef enum pool_state {
    POOL_TAKEN,
    POOL_FREE,
    POOL_HOLE,
    POOL_AWAITED, /* by a thread that waits for its points */
    POOL_AWAY,    /* addresses without usable memory: a hole being filled, or memory's former place */
    POOL_CHUNK,   /* no extent: a block of the layer below (chunks/upstream.c) */
} pool_state;

/* The pool's bytes in an entry. */
typedef struct pool_extent {
    uint32_t previous, next; /* neighbours in its range; 0: none */
    union {
        strata_treap_node links; /* in its tree */
        strata_entry *below;     /* next in a cache; in a magazine some extents ahead, or NULL */
    };
    uint32_t chain;    /* next in a magazine or window; in a cache its own number */
    uint16_t timeline; /* of its tree, if free */
    uint8_t state;
    uint8_t side; /* of its range */
} pool_extent;

/* Free memory that waits for one stream. Permanent. */
typedef struct pool_stream_list {
    pool_tree trees[POOL_SIDES];
    uint16_t timeline;     /* 0: unused, or complete memory */
    uint64_t processed_to; /* the stream's progress when last processed */
    struct pool_stream_list *next;
} pool_stream_list;

enum { POOL_LISTS_PER_PAGE = 64 };

typedef struct pool_half {
    pool_tree holes;
    uint64_t free_bytes;
    uint64_t range_bytes; /* of its ranges */
    uint64_t away_bytes;  /* of POOL_AWAY */
} pool_half;

struct pool_heap {
    strata_table *table;
    uint32_t offset; /* of the pool's bytes in an entry */
    strata_address_index index;
    pool_half halves[POOL_SIDES];
    pool_stream_list complete, multi_stream; /* memory that waits for none, and for several */
    pool_stream_list *stream_lists;          /* all lists, these two last */
    pool_stream_list *list_pages[STRATA_TIMELINE_LIMIT / POOL_LISTS_PER_PAGE]; /* by timeline number; NULL: none yet */
    bool joins_complete;                                                       /* with pending neighbours; constant */
};

static inline strata_entry *pool_entry(const pool_heap *heap, uint32_t slot)
{
    return strata_table_entry(heap->table, slot);
}

static inline pool_extent *pool_extent_in(const pool_heap *heap, strata_entry *entry)
{
    return (pool_extent *)(void *)((char *)entry + heap->offset);
}

static inline pool_extent *pool_extent_at(const pool_heap *heap, uint32_t slot)
{
    return pool_extent_in(heap, pool_entry(heap, slot));
}

static inline uint64_t pool_bytes_of(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->bytes, memory_order_relaxed);
}

static inline CUdeviceptr pool_address_of(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->address, memory_order_relaxed);
}

static inline uint64_t pool_free_bytes(const pool_heap *heap)
{
    uint64_t bytes = 0;
    for (int side = 0; side < POOL_SIDES; side++)
        bytes += heap->halves[side].free_bytes;
    return bytes;
}

/* Bytes of addresses that have memory. */
static inline uint64_t pool_mapped_bytes(const pool_heap *heap, pool_side side)
{
    const pool_half *half = &heap->halves[side];
    return half->range_bytes - half->holes.bytes - half->away_bytes;
}

/* Begins a zeroed heap, before all other calls. `offset`: of the pool's bytes in an entry. */
void pool_heap_begin(pool_heap *heap, strata_table *table, uint32_t offset);

/* Makes an address range one extent of the caller's. 0 without host memory. */
uint32_t pool_heap_enter(pool_heap *heap, pool_side side, CUdeviceptr base, uint64_t bytes);

/* Takes a range that is one extent of the caller's out of the heap. */
void pool_heap_leave(pool_heap *heap, uint32_t slot);

void pool_heap_destroy(pool_heap *heap);

/* Makes addresses two holes: up to `small` of the large side, then of the small side. False without host memory:
 * nothing changed. */
bool pool_heap_enter_holes(pool_heap *heap, CUdeviceptr base, CUdeviceptr small, uint64_t bytes);

/* The first extent that begins at or behind an address; the one behind an extent, also of the next range. 0: none. */
uint32_t pool_heap_from(const pool_heap *heap, CUdeviceptr address);
uint32_t pool_heap_behind(const pool_heap *heap, uint32_t slot);

/* Cuts `front` bytes off an extent of the caller's. Returns the rest, with equal points and state; 0 without host
 * memory: nothing changed. */
uint32_t pool_heap_split(pool_heap *heap, uint32_t slot, uint64_t front);

/* Replaces an entry whose generations are used up. 0 as above. */
uint32_t pool_heap_renumber(pool_heap *heap, uint32_t slot);

/* Takes an extent out of its tree: it is the caller's. */
void pool_heap_take(pool_heap *heap, uint32_t slot);

/* As pool_heap_take; the state is POOL_AWAY. */
void pool_heap_take_away(pool_heap *heap, uint32_t slot);

/* Makes an extent of the caller's POOL_AWAY; it keeps its points. */
void pool_heap_put_away(pool_heap *heap, uint32_t slot);

/* Makes an extent of the caller's free, or a hole. Joins it with neighbours of its tree; also with complete ones that
 * are no larger if its tree has nearly all pending memory. */
void pool_heap_give(pool_heap *heap, uint32_t slot, pool_state state);

/* Best fit in memory that waits for no stream but `timeline`; 0: none. */
uint32_t pool_heap_find(pool_heap *heap, pool_side side, uint16_t timeline, uint64_t bytes);

/* The next larger extent of its tree; 0: none. */
uint32_t pool_heap_next(pool_heap *heap, uint32_t slot);

/* Whether an extent will do. */
typedef bool (*pool_accepts)(const strata_entry *entry, void *data);

/* Best fit whatever it waits for; with `accepts`, of the accepted ones among the POOL_ACCEPTS smallest of each tree. */
enum { POOL_ACCEPTS = 64 };
uint32_t pool_heap_find_elsewhere(pool_heap *heap, pool_side side, uint64_t bytes, pool_accepts accepts, void *data);

/* The best fit whatever it waits for, if it fits much better than the best one that waits for no stream but `timeline`;
 * 0: none does, or there is no such one. */
uint32_t pool_heap_find_better(pool_heap *heap, pool_side side, uint16_t timeline, uint64_t bytes);

/* Moves known-complete extents to their tree. */
void pool_heap_process_completed(pool_heap *heap);

/* The last extent that begins at or before an address, even if it ends before that; 0: none. */
uint32_t pool_heap_around(const pool_heap *heap, CUdeviceptr address);

/* Whether a range is within one extent that is taken. */
bool pool_heap_is_taken(const pool_heap *heap, CUdeviceptr address, uint64_t bytes);

/* The extent in which a free range begins; 0: a part of it is not free. */
uint32_t pool_heap_free_at(const pool_heap *heap, CUdeviceptr address, uint64_t bytes);

/* What a look at an extent has seen. */
typedef struct pool_seen_extent {
    CUdeviceptr address;
    uint64_t bytes, requested;
    uint64_t word; /* of its entry */
    uint16_t timeline;
    uint8_t state, side;
    strata_tag tag;
} pool_seen_extent;

enum { POOL_SEEN_MOST = 64 /* by one look */ };

/* The next extents from *from on, by address. Returns how many; 0: no more. */
size_t pool_heap_look(const pool_heap *heap, CUdeviceptr *from, pool_seen_extent seen[POOL_SEEN_MOST]);

/* What may still use free memory. */
typedef enum pool_work {
    POOL_OVER,     /* nothing, as far as is known */
    POOL_IN_ORDER, /* work of one stream alone */
    POOL_OTHERS,
    POOL_IN_USE, /* it is not free */
} pool_work;

/* What may still use memory from a free extent on to an address; POOL_IN_USE without an extent (`slot` 0). `own`: the
 * stream's timeline; POOL_TIMELINE_NONE: no stream. */
pool_work pool_heap_work_on(const pool_heap *heap, uint32_t slot, CUdeviceptr end, uint16_t own);

/* Takes a free range as one extent. 0: a part is not free, or no host memory. */
uint32_t pool_heap_take_range(pool_heap *heap, CUdeviceptr address, uint64_t bytes);

/* Where the shortest run of free neighbours of at least `bytes` begins that wait for no stream but `timeline`;
 * POOL_TIMELINE_MULTI: whatever they wait for. 0: none. */
CUdeviceptr pool_heap_find_run(const pool_heap *heap, pool_side side, uint16_t timeline, uint64_t bytes);

/* Holes in the order of size and address; 0: none. */
uint32_t pool_heap_first_hole(const pool_heap *heap, pool_side side);
uint32_t pool_heap_next_hole(const pool_heap *heap, uint32_t slot);

/* Points of free memory: the latest of each stream that some waits for alone, and all of multi-stream memory. */
void pool_heap_visit_pending(const pool_heap *heap, strata_status (*visit)(strata_point point, void *data), void *data);

/* Free bytes that wait for other streams than `timeline`. */
uint64_t pool_heap_elsewhere(const pool_heap *heap, pool_side side, uint16_t timeline);

/* Bytes of the largest free extent, and of the largest hole, without one that a thread is filling. */
uint64_t pool_heap_largest(const pool_heap *heap);
uint64_t pool_heap_largest_hole(const pool_heap *heap, pool_side side);

#endif
