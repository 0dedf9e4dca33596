/* Sets of free extents, ordered by size, then address: one look finds the lowest best fit.
 *
 *     classes   | 512 B | ... | 8 .. 10 KiB | 10 .. 12 KiB | ... | 1 .. 1.25 GiB | ...     four for each doubling
 *     filled        0             1             0                     1
 *     roots                       treap                               treap
 *
 * A treap of some hundred extents is a dozen cache misses and mispredicted branches deep; a class has few extents, and
 * a bit for each says which have any. Priorities are hashes of extent numbers: equal requests make equal trees.
 *
 * Guarded by the pool's lock. */
#ifndef STRATA_RESOURCES_EXTENTS_TREES_H
#define STRATA_RESOURCES_EXTENTS_TREES_H

#include "core/base/treap.h"
#include "core/blocks/blocks.h"

typedef struct pool_heap pool_heap;

enum { POOL_CLASSES_PER_DOUBLING = 4, POOL_CLASS_WORDS = 3, POOL_CLASSES = 64 * POOL_CLASS_WORDS };

/* A set of free extents. Zeroed: empty. */
typedef struct pool_tree {
    uint64_t bytes; /* of all extents; 0: empty */
    bool entered;   /* changed since last processed */
    uint64_t filled[POOL_CLASS_WORDS];
    uint32_t roots[POOL_CLASSES];
} pool_tree;

typedef struct pool_key {
    uint64_t bytes;
    CUdeviceptr address;
} pool_key;

static inline pool_key pool_key_of(const strata_entry *entry)
{
    return (pool_key){atomic_load_explicit(&entry->bytes, memory_order_relaxed),
                      atomic_load_explicit(&entry->address, memory_order_relaxed)};
}

static inline bool pool_is_before(pool_key a, pool_key b)
{
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
}

void pool_tree_enter(const pool_heap *heap, pool_tree *tree, uint32_t slot);
void pool_tree_leave(const pool_heap *heap, pool_tree *tree, uint32_t slot);

/* The first extent at or behind `least`, of all, behind `key`, behind an extent; 0: none. */
uint32_t pool_tree_from(const pool_heap *heap, const pool_tree *tree, pool_key least);
uint32_t pool_tree_first(const pool_heap *heap, const pool_tree *tree);
uint32_t pool_tree_behind(const pool_heap *heap, const pool_tree *tree, pool_key key);
uint32_t pool_tree_next(const pool_heap *heap, const pool_tree *tree, uint32_t slot);

/* Bytes of the largest extent; 0: none. */
uint64_t pool_tree_largest(const pool_heap *heap, const pool_tree *tree);

#endif
