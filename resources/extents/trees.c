/* Sets of free extents. */
#include "resources/extents/trees.h"

#include "resources/extents/extents.h"

/* ---- classes ---- */

/* Sizes of a class are neighbours in the order of sizes. The last takes all that are larger. */
static inline unsigned class_of(uint64_t bytes)
{
    enum { STEPS = POOL_CLASSES_PER_DOUBLING };
    const uint64_t granules = bytes / POOL_GRANULE | 1;
    const unsigned doubling = 63 - (unsigned)__builtin_clzll(granules);
    const unsigned class = doubling * STEPS + ((unsigned)(granules * STEPS >> doubling) & (STEPS - 1));
    return class < POOL_CLASSES ? class : POOL_CLASSES - 1;
}

static inline void note_class(pool_tree *tree, unsigned class)
{
    const uint64_t bit = UINT64_C(1) << class % 64;
    tree->filled[class / 64] = (tree->filled[class / 64] & ~bit) | (tree->roots[class] ? bit : 0);
}

/* The next class with an extent, behind `class`; POOL_CLASSES: none. */
static inline unsigned class_behind(const pool_tree *tree, unsigned class)
{
    unsigned word = ++class / 64;
    uint64_t bits = class < POOL_CLASSES ? tree->filled[word] & UINT64_MAX << class % 64 : 0;
    while (!bits) {
        if (++word >= POOL_CLASS_WORDS)
            return POOL_CLASSES;
        bits = tree->filled[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

/* ---- treaps ---- */

static inline strata_treap_node *node_of(const void *heap, uint32_t slot)
{
    return &pool_extent_at(heap, slot)->links;
}

static inline bool is_before(const void *heap, uint32_t slot, const void *key, strata_treap_node **node)
{
    strata_entry *entry = pool_entry(heap, slot);
    *node = &pool_extent_in(heap, entry)->links;
    return pool_is_before(pool_key_of(entry), *(const pool_key *)key);
}

static const strata_treap_order by_size = {node_of, is_before};

static uint32_t least_of(const pool_heap *heap, uint32_t tree)
{
    for (uint32_t left = tree; left; left = pool_extent_at(heap, tree)->links.left)
        tree = left;
    return tree;
}

/* ---- the set ---- */

void pool_tree_enter(const pool_heap *heap, pool_tree *tree, uint32_t slot)
{
    strata_entry *entry = pool_entry(heap, slot);
    const pool_key key = pool_key_of(entry);
    const unsigned class = class_of(key.bytes);
    strata_treap_enter(&tree->roots[class], slot, &pool_extent_in(heap, entry)->links, &key, by_size, heap);
    tree->bytes += key.bytes;
    tree->entered = true;
    note_class(tree, class);
}

void pool_tree_leave(const pool_heap *heap, pool_tree *tree, uint32_t slot)
{
    strata_entry *entry = pool_entry(heap, slot);
    const pool_key key = pool_key_of(entry);
    const unsigned class = class_of(key.bytes);
    strata_treap_leave(&tree->roots[class], slot, &pool_extent_in(heap, entry)->links, &key, by_size, heap);
    tree->bytes -= key.bytes;
    note_class(tree, class);
}

uint32_t pool_tree_from(const pool_heap *heap, const pool_tree *tree, pool_key least)
{
    const unsigned class = class_of(least.bytes);
    const uint32_t found = strata_treap_from(tree->roots[class], &least, by_size, heap);
    if (found)
        return found;
    const unsigned behind = class_behind(tree, class);
    return behind < POOL_CLASSES ? least_of(heap, tree->roots[behind]) : 0;
}

uint32_t pool_tree_first(const pool_heap *heap, const pool_tree *tree)
{
    return pool_tree_from(heap, tree, (pool_key){0, 0});
}

uint32_t pool_tree_behind(const pool_heap *heap, const pool_tree *tree, pool_key key)
{
    return pool_tree_from(heap, tree, (pool_key){key.bytes, key.address + 1});
}

uint32_t pool_tree_next(const pool_heap *heap, const pool_tree *tree, uint32_t slot)
{
    return pool_tree_behind(heap, tree, pool_key_of(pool_entry(heap, slot)));
}

uint64_t pool_tree_largest(const pool_heap *heap, const pool_tree *tree)
{
    for (unsigned word = POOL_CLASS_WORDS; word--;) {
        if (!tree->filled[word])
            continue;
        uint32_t slot = tree->roots[word * 64 + 63 - (unsigned)__builtin_clzll(tree->filled[word])];
        for (uint32_t right = slot; right; right = pool_extent_at(heap, slot)->links.right)
            slot = right;
        return pool_key_of(pool_entry(heap, slot)).bytes;
    }
    return 0;
}
