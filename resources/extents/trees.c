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

static inline uint32_t priority_of(uint32_t slot)
{
    return slot * UINT32_C(0x9e3779b1) ^ (slot * UINT32_C(0x85ebca6b)) >> 15;
}

static void cut(const pool_heap *heap, uint32_t tree, pool_key key, uint32_t *before, uint32_t *behind)
{
    while (tree) {
        strata_entry *entry = pool_entry(heap, tree);
        pool_extent *extent = pool_extent_in(heap, entry);
        if (pool_is_before(pool_key_of(entry), key)) {
            *before = tree;
            before = &extent->right;
            tree = extent->right;
        } else {
            *behind = tree;
            behind = &extent->left;
            tree = extent->left;
        }
    }
    *before = *behind = 0;
}

/* Joins the two subtrees of an extent that leaves. */
static void join(const pool_heap *heap, uint32_t *link, const pool_extent *extent)
{
    uint32_t left = extent->left, right = extent->right;
    while (left && right) {
        const bool takes_left = priority_of(left) >= priority_of(right);
        *link = takes_left ? left : right;
        pool_extent *node = pool_extent_at(heap, *link);
        if (takes_left) {
            link = &node->right;
            left = node->right;
        } else {
            link = &node->left;
            right = node->left;
        }
    }
    *link = left ? left : right;
}

static uint32_t least_of(const pool_heap *heap, uint32_t tree)
{
    for (uint32_t left = tree; left; left = pool_extent_at(heap, tree)->left)
        tree = left;
    return tree;
}

static uint32_t find_from(const pool_heap *heap, uint32_t tree, pool_key least)
{
    uint32_t found = 0;
    while (tree) {
        strata_entry *entry = pool_entry(heap, tree);
        const pool_extent *extent = pool_extent_in(heap, entry);
        if (pool_is_before(pool_key_of(entry), least)) {
            tree = extent->right;
        } else {
            found = tree;
            tree = extent->left;
        }
    }
    return found;
}

/* ---- the set ---- */

void pool_tree_enter(const pool_heap *heap, pool_tree *tree, uint32_t slot)
{
    strata_entry *entry = pool_entry(heap, slot);
    pool_extent *extent = pool_extent_in(heap, entry);
    const pool_key key = pool_key_of(entry);
    const unsigned class = class_of(key.bytes);
    const uint32_t priority = priority_of(slot);
    uint32_t *link = &tree->roots[class];
    while (*link && priority_of(*link) >= priority) {
        strata_entry *here = pool_entry(heap, *link);
        pool_extent *node = pool_extent_in(heap, here);
        link = pool_is_before(pool_key_of(here), key) ? &node->right : &node->left;
    }
    cut(heap, *link, key, &extent->left, &extent->right);
    *link = slot;
    tree->bytes += key.bytes;
    tree->entered = true;
    note_class(tree, class);
}

void pool_tree_leave(const pool_heap *heap, pool_tree *tree, uint32_t slot)
{
    const pool_key key = pool_key_of(pool_entry(heap, slot));
    const unsigned class = class_of(key.bytes);
    uint32_t *link = &tree->roots[class];
    while (*link != slot) {
        strata_entry *here = pool_entry(heap, *link);
        pool_extent *node = pool_extent_in(heap, here);
        link = pool_is_before(pool_key_of(here), key) ? &node->right : &node->left;
    }
    join(heap, link, pool_extent_at(heap, slot));
    tree->bytes -= key.bytes;
    note_class(tree, class);
}

uint32_t pool_tree_from(const pool_heap *heap, const pool_tree *tree, pool_key least)
{
    const unsigned class = class_of(least.bytes);
    const uint32_t found = find_from(heap, tree->roots[class], least);
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
        for (uint32_t right = slot; right; right = pool_extent_at(heap, slot)->right)
            slot = right;
        return pool_key_of(pool_entry(heap, slot)).bytes;
    }
    return 0;
}
