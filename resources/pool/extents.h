/* The pool's address space.
 *
 * An address range consists of adjacent *extents*. There is one range, or, with fixed chunks, one for each chunk;
 * extents of different ranges are never neighbours. An extent is an entry of the stack's table of blocks, with or
 * without a block, so that its address, size and points are where a block's are, and making a block of it copies
 * nothing:
 *
 *     | taken | free, of A | taken | free, complete | hole .......... | taken | free, of A and B | hole ...
 *
 *     taken   a block lives in it, or a thread owns it: in its cache, or in transit
 *     free    unused memory, in a tree: of the one stream that it waits for, of complete memory, or of multi-stream
 * memory hole    addresses without memory
 *
 * A tree is ordered by size, then address, so one descent finds the lowest best fit. It is a treap whose priorities are
 * hashes of extent numbers: equal requests make equal trees.
 *
 * Neighbours of one list are joined at once, and complete ones also with memory of the single stream that all other
 * memory waits for. Neighbours of different lists are joined when nothing fits, and only those that a request then
 * takes: a joined extent waits for all streams of its parts.
 *
 * Guarded by the pool's lock, except a taken extent's points, chain, below and state: they belong to its owner. */
#ifndef STRATA_RESOURCES_POOL_EXTENTS_H
#define STRATA_RESOURCES_POOL_EXTENTS_H

#include "core/blocks/address_index.h"
#include "resources/pool/pending.h"

enum { POOL_GRANULE = 512 }; /* sizes and addresses of extents are multiples of it */

typedef enum pool_state {
    POOL_TAKEN,
    POOL_FREE,
    POOL_HOLE,
    POOL_AWAITED, /* taken by a thread that waits on the host for its points and does not change them */
    POOL_AWAY,    /* taken addresses without mapped or usable memory */
    POOL_CHUNK,   /* no extent: a block of the layer below that extents are cut from, see chunks_upstream.c */
} pool_state;

/* The pool's bytes of an entry. */
typedef struct pool_extent {
    uint32_t previous, next; /* neighbours in its range; 0: none */
    union {
        struct {
            uint32_t left, right; /* in its tree */
        };
        strata_entry *below; /* next one in a thread's cache; some extents ahead in a magazine, or NULL */
    };
    uint32_t chain;    /* next one in a magazine, or next hole of a window; in a thread's cache its own number */
    uint16_t timeline; /* list of a free extent */
    uint8_t state;     /* pool_state */
} pool_extent;

typedef struct pool_tree {
    uint32_t root;
    bool entered;   /* changed since it was last processed */
    uint64_t bytes; /* of all extents in it */
} pool_tree;

/* Free memory that waits for one stream. */
typedef struct pool_stream_list {
    pool_tree tree;
    uint16_t timeline;             /* 0: unused */
    uint64_t processed_to;         /* progress of the stream when the tree was last processed */
    struct pool_stream_list *next; /* all lists; they live as long as the pool */
} pool_stream_list;

enum { POOL_LISTS_PER_PAGE = 256 /* of a page of lists */ };

typedef struct pool_heap {
    strata_table *table;
    uint32_t offset; /* of the pool's bytes in an entry */
    strata_address_index index;
    pool_tree complete, multi_stream, holes; /* complete memory, memory that waits for several streams, and holes */
    pool_stream_list *stream_lists;          /* linked through next */
    pool_stream_list
        *list_pages[STRATA_TIMELINE_LIMIT / POOL_LISTS_PER_PAGE]; /* by timeline number; NULL: none of these */
    uint64_t free_bytes;
    bool joins_complete; /* complete memory is joined with pending neighbours; constant */
} pool_heap;

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

/* Enters an address range as one extent in no tree, owned by the caller. 0 without host memory. */
uint32_t pool_heap_enter(pool_heap *heap, CUdeviceptr base, uint64_t bytes);

/* Removes a range that is one extent in no tree, owned by the caller. */
void pool_heap_leave(pool_heap *heap, uint32_t slot);

void pool_heap_destroy(pool_heap *heap);

/* The first extent at or behind an address, and the one behind an extent, in any range; 0: none. */
uint32_t pool_heap_from(const pool_heap *heap, CUdeviceptr address);
uint32_t pool_heap_behind(const pool_heap *heap, uint32_t slot);

/* Cuts `front` bytes off an extent in no tree. The rest becomes an extent with the same points and state, in no tree.
 * Returns its number; 0 without host memory, leaving everything unchanged. */
uint32_t pool_heap_split(pool_heap *heap, uint32_t slot, uint64_t front);

/* Gives an extent in no tree a new entry, since its entry's generations are used up. Returns its number; 0 without host
 * memory, leaving everything unchanged. */
uint32_t pool_heap_renumber(pool_heap *heap, uint32_t slot);

/* Takes an extent out of its tree; the caller owns it. */
void pool_heap_take(pool_heap *heap, uint32_t slot);

/* As pool_heap_take, for a hole, which no thread takes for memory meanwhile. */
void pool_heap_take_away(pool_heap *heap, uint32_t slot);

/* Frees an extent in no tree, as memory or hole. It is joined with neighbours of the same list, and with complete ones
 * that are no larger if its list has nearly all pending memory. */
void pool_heap_give(pool_heap *heap, uint32_t slot, pool_state state);

/* Best fit in memory that waits for no stream but `timeline`; 0: none. */
uint32_t pool_heap_find(pool_heap *heap, uint16_t timeline, uint64_t bytes);

/* As pool_heap_find, but takes the extent at the end of memory last: blocks there are in the way of later requests. */
uint32_t pool_heap_find_before_end(pool_heap *heap, uint16_t timeline, uint64_t bytes);

/* The next free extent of the same list, by size and address; 0: none. */
uint32_t pool_heap_next(pool_heap *heap, uint32_t slot);

/* Best fit in all memory. */
uint32_t pool_heap_find_elsewhere(pool_heap *heap, uint64_t bytes);

/* Best fit among extents that accepts(entry, data) takes. Of each list only the POOL_ACCEPTS smallest that fit are
 * tried. */
enum { POOL_ACCEPTS = 64 };
uint32_t pool_heap_find_accepted(pool_heap *heap, uint64_t bytes,
                                 bool (*accepts)(const strata_entry *entry, void *data), void *data);

/* Moves complete free extents to the complete tree, as far as is known, and joins neighbours. */
void pool_heap_process_completed(pool_heap *heap);

/* Joins a free extent with free neighbours that wait for no stream but `timeline`; POOL_TIMELINE_MULTI: for any. */
void pool_heap_join_around(pool_heap *heap, uint32_t slot, uint16_t timeline);

/* The extent that contains an address. */
uint32_t pool_heap_around(const pool_heap *heap, CUdeviceptr address);

/* The extent in which a range begins, if the range is free; else 0. */
uint32_t pool_heap_free_at(const pool_heap *heap, CUdeviceptr address, uint64_t bytes);

/* Takes a free range as one extent, whatever it waits for; parts of its extents outside the range stay separate. 0 if
 * it is not free, or without host memory. */
uint32_t pool_heap_take_range(pool_heap *heap, CUdeviceptr address, uint64_t bytes);

/* Start of the shortest run of free neighbours that wait for no stream but `timeline` (POOL_TIMELINE_MULTI: for any)
 * and have `bytes` together; 0: none. */
CUdeviceptr pool_heap_find_run(const pool_heap *heap, uint16_t timeline, uint64_t bytes);

/* The first and the next hole, by size and address; 0: none. */
uint32_t pool_heap_first_hole(const pool_heap *heap);
uint32_t pool_heap_next_hole(const pool_heap *heap, uint32_t slot);

/* Calls visit(point, data) for each point of multi-stream memory. */
void pool_heap_visit_multi_stream(const pool_heap *heap, strata_status (*visit)(strata_point point, void *data),
                                  void *data);

/* Free bytes that wait for streams other than `timeline`. */
uint64_t pool_heap_elsewhere(const pool_heap *heap, uint16_t timeline);

/* The latest pending points of free memory for up to `most` timelines with numbers above `after`, in their order.
 * Returns how many. */
size_t pool_heap_pending(const pool_heap *heap, uint16_t after, strata_point *points, size_t most);

/* Size of the largest free extent. */
uint64_t pool_heap_largest(const pool_heap *heap);

#endif
