/* The pool's address space, piece by piece.
 *
 * A range of addresses is cut into *pieces* that follow each other without a gap. There is one range, or, where memory
 * stays where it was got, one for each frame: pieces of two ranges are never neighbours, whatever their addresses. A
 * piece is an entry of the stack's table of blocks, whether a block lives in it or not, so that its address, its size
 * and what it waits for stand where a block's do, and making a block of a piece costs no copy:
 *
 *     | taken | free, of A | taken | free, complete | void .......... | taken | free, of A and B | void ...
 *
 *     taken   a block lives in it, or some thread has it to itself: in its cache, or on its way
 *     free    memory that nobody has. In the tree of its *home*: the one stream that it waits for, none, or several
 *     void    addresses without memory
 *
 * A tree is ordered by size and then by address, so the best fit, and of those the lowest, is found in one descent. It
 * is a treap: an entry's priority is a hash of its number, so that the same requests make the same trees.
 *
 * Neighbours of one home are joined at once, and complete ones with what the one stream has freed that all others wait
 * for. Those of different homes are joined when nothing fits, and only those that a request then takes: joined, each
 * waits for the other's stream.
 *
 * All of it is guarded by the pool's lock, but for a taken piece's points, and its chain, `below` and state: they are
 * whose the piece is. */
#ifndef STRATA_RESOURCES_POOL_EXTENTS_H
#define STRATA_RESOURCES_POOL_EXTENTS_H

#include "core/blocks/address_index.h"
#include "resources/pool/pending.h"

enum { POOL_GRANULE = 512 }; /* sizes and addresses of pieces are multiples of it */

typedef enum pool_state {
    POOL_TAKEN,
    POOL_FREE,
    POOL_HOLE,
    POOL_AWAITED, /* taken, by a thread that waits on the host for its points and leaves them as they are */
    POOL_AWAY,    /* taken addresses that no memory is mapped at, or none that anybody can use */
    POOL_CHUNK,   /* no piece: a block of the layer below that pieces are cut from, see resources/pool/chunks_upstream.c
                   */
} pool_state;

/* The pool's bytes of an entry. */
typedef struct pool_extent {
    uint32_t previous, next; /* pieces before and behind it in its range, 0: none */
    union {
        struct {
            uint32_t left, right; /* in its tree */
        };
        strata_entry *below; /* the one under it in a thread's cache; some pieces on in a bundle, or NULL */
    };
    uint32_t chain;    /* the next one of a bundle, or of the voids of a window; in a thread's cache its own number */
    uint16_t timeline; /* whose tree a free piece is in */
    uint8_t state;     /* a pool_state */
} pool_extent;

typedef struct pool_tree {
    uint32_t root;
    bool entered;   /* something came in since it was last settled */
    uint64_t bytes; /* of all pieces in it */
} pool_tree;

/* The free memory that waits for one stream. */
typedef struct pool_stream_list {
    pool_tree tree;
    uint16_t timeline;             /* 0: there is none of this number yet */
    uint64_t processed_to;         /* how far the stream was known to be when the tree was last settled */
    struct pool_stream_list *next; /* of all; homes are kept as long as the pool */
} pool_stream_list;

enum { POOL_LISTS_PER_PAGE = 256 /* in a page */ };

typedef struct pool_heap {
    strata_table *table;
    uint32_t offset; /* of the pool's bytes in an entry */
    strata_address_index index;
    pool_tree complete, multi_stream, holes; /* free memory that waits for nobody, and for several; voids */
    pool_stream_list *stream_lists;          /* through next */
    pool_stream_list
        *list_pages[STRATA_TIMELINE_LIMIT / POOL_LISTS_PER_PAGE]; /* of homes, by their numbers; NULL: none of them */
    uint64_t free_bytes;
    bool joins_complete; /* with what waits for a stream; constant */
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

/* Enters a range of addresses: it is one piece, in no tree, and the caller's. 0 without host memory. */
uint32_t pool_heap_enter(pool_heap *heap, CUdeviceptr base, uint64_t bytes);

/* Takes a range out whose one piece, in no tree, is the caller's. */
void pool_heap_leave(pool_heap *heap, uint32_t slot);

void pool_heap_destroy(pool_heap *heap);

/* The piece with the lowest address at or behind this one, and the next one behind a piece, in whatever range; 0: there
 * is none. */
uint32_t pool_heap_from(const pool_heap *heap, CUdeviceptr address);
uint32_t pool_heap_behind(const pool_heap *heap, uint32_t slot);

/* Cuts `front` bytes off a piece that is in no tree; what is behind them becomes a piece with the same points and
 * state, in no tree either. Its number; 0 without host memory, and nothing changed. */
uint32_t pool_heap_split(pool_heap *heap, uint32_t slot, uint64_t front);

/* Gives a piece that is in no tree another entry: its own has had all the blocks that it can. The number of the new
 * one; 0 without host memory, and nothing changed. */
uint32_t pool_heap_renumber(pool_heap *heap, uint32_t slot);

/* Takes a piece out of its tree: it is the caller's. */
void pool_heap_take(pool_heap *heap, uint32_t slot);

/* The same with a void, which nobody takes for memory meanwhile. */
void pool_heap_take_away(pool_heap *heap, uint32_t slot);

/* Puts a piece that is in no tree among the free or void ones, joined with its neighbours of the same home, and with
 * complete ones that are no larger if it is of the home of nearly all that is not complete. */
void pool_heap_give(pool_heap *heap, uint32_t slot, pool_state state);

/* The best fit for `bytes` in memory that waits for no stream but `timeline`; 0: none. */
uint32_t pool_heap_find(pool_heap *heap, uint16_t timeline, uint64_t bytes);

/* The same, but the piece at the end of memory only if nothing else fits: blocks that are put there when they need not
 * be are in the way of all that follows. */
uint32_t pool_heap_find_before_end(pool_heap *heap, uint16_t timeline, uint64_t bytes);

/* The free piece that comes after one, by size and address, among those that wait for the same; 0: none. */
uint32_t pool_heap_next(pool_heap *heap, uint32_t slot);

/* The best fit in all memory. */
uint32_t pool_heap_find_elsewhere(pool_heap *heap, uint64_t bytes);

/* The best fit of those that accepts(entry, data) takes; of what waits for one and the same the smallest ones that fit
 * are looked at, POOL_ACCEPTS of them. */
enum { POOL_ACCEPTS = 64 };
uint32_t pool_heap_find_accepted(pool_heap *heap, uint64_t bytes,
                                 bool (*accepts)(const strata_entry *entry, void *data), void *data);

/* Finds out which free pieces are complete by what is known, and joins neighbours that have become of one home. */
void pool_heap_process_completed(pool_heap *heap);

/* Joins a free piece with the free ones beside it that wait for nobody but `timeline`; POOL_TIMELINE_MULTI: for
 * anybody.
 */
void pool_heap_join_around(pool_heap *heap, uint32_t slot, uint16_t timeline);

/* The piece that contains an address. */
uint32_t pool_heap_around(const pool_heap *heap, CUdeviceptr address);

/* The piece that a range begins in, if nothing but free pieces is in the range; else 0. */
uint32_t pool_heap_free_at(const pool_heap *heap, CUdeviceptr address, uint64_t bytes);

/* Takes a range that is free, whatever the pieces in it wait for, as one piece; what they have outside of it stays
 * apart. 0 if it is not free, or without host memory. */
uint32_t pool_heap_take_range(pool_heap *heap, CUdeviceptr address, uint64_t bytes);

/* Where the shortest range of free neighbours begins that wait for nobody but `timeline` and have so many bytes
 * together; POOL_TIMELINE_MULTI: whatever they wait for. 0: nowhere. */
CUdeviceptr pool_heap_find_run(const pool_heap *heap, uint16_t timeline, uint64_t bytes);

/* The first and the next void, by size and address; 0: none. */
uint32_t pool_heap_first_hole(const pool_heap *heap);
uint32_t pool_heap_next_hole(const pool_heap *heap, uint32_t slot);

/* Calls visit(point, data) for each point of memory that waits for several streams. */
void pool_heap_visit_multi_stream(const pool_heap *heap, strata_status (*visit)(strata_point point, void *data),
                                  void *data);

/* The bytes that are free and wait for others than `timeline`. */
uint64_t pool_heap_elsewhere(const pool_heap *heap, uint16_t timeline);

/* The latest points, not known to be complete, that free memory has of each of the next timelines behind `after`, by
 * their numbers, at most so many; how many there are. */
size_t pool_heap_pending(const pool_heap *heap, uint16_t after, strata_point *points, size_t most);

/* The size of the largest free piece. */
uint64_t pool_heap_largest(const pool_heap *heap);

#endif
