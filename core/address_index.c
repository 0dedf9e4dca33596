/* The trie behind the address index. Level 0 is the leaf level; a node exists only while something is below it. */
#include "core/address_index.h"

#include "core/memory.h"

#include <stddef.h>

enum {
    BITS = 6,
    WIDTH = 1 << BITS,
    GRANULE_BITS = 8,
    LEVELS = 8, /* 8 + 8 * 6 = 56 bits of address */
};

typedef struct leaf {
    uint64_t used;
    uint32_t slots[WIDTH];
} leaf;

typedef struct node {
    uint64_t used;
    void *children[WIDTH];
} node;

static unsigned digit(CUdeviceptr address, unsigned level)
{
    return (unsigned)(address >> (GRANULE_BITS + BITS * level)) & (WIDTH - 1);
}

/* What an address has above the digit of `level`. */
static CUdeviceptr above(CUdeviceptr address, unsigned level)
{
    return address >> (GRANULE_BITS + BITS * (level + 1));
}

static CUdeviceptr first_address(const strata_address_index *index)
{
    return index->prefix << (GRANULE_BITS + BITS * (index->top + 1));
}

static CUdeviceptr with_digit(CUdeviceptr address, unsigned level, unsigned value)
{
    unsigned shift = GRANULE_BITS + BITS * level;
    CUdeviceptr below = ((CUdeviceptr)1 << (shift + BITS)) - 1;
    return (address & ~below) | (CUdeviceptr)value << shift;
}

/* Takes away what an insertion that ran out of memory left: the empty nodes on the way to `start`, lowest first. */
static void prune(strata_address_index *index, node *const *path, CUdeviceptr start)
{
    for (unsigned level = 1; level <= index->top; level++) {
        node *parent = path[level];
        if (!parent)
            continue;
        unsigned which = digit(start, level);
        uint64_t *below = parent->children[which];
        if (below && *below)
            return;
        if (below) {
            parent->children[which] = NULL;
            strata_host_free(below);
        }
        parent->used &= ~(UINT64_C(1) << which);
        if (parent->used)
            return;
    }
    strata_host_free(index->root);
    index->root = NULL;
}

/* Raises the root until `start` is below it. False without host memory: the index is as good as before. */
static bool raise_root(strata_address_index *index, CUdeviceptr start)
{
    if (above(start, LEVELS - 1))
        return false;
    if (!index->root) {
        index->root = strata_host_zalloc(sizeof(node));
        index->top = 1;
        index->prefix = above(start, 1);
    }
    while (index->root && above(start, index->top) != index->prefix) {
        node *root = strata_host_zalloc(sizeof *root);
        if (!root)
            return false;
        unsigned which = (unsigned)index->prefix & (WIDTH - 1);
        root->children[which] = index->root;
        root->used = UINT64_C(1) << which;
        index->root = root;
        index->prefix >>= BITS;
        index->top++;
    }
    return index->root != NULL;
}

/* The leaf of `start`, made with all nodes above it if need be; NULL without host memory. */
static leaf *make_leaf(strata_address_index *index, CUdeviceptr start)
{
    node *path[LEVELS] = {NULL};
    if (!raise_root(index, start))
        return NULL;
    node *at = index->root;
    for (unsigned level = index->top; level > 0; level--) {
        path[level] = at;
        unsigned which = digit(start, level);
        if (!at->children[which]) {
            void *made = strata_host_zalloc(level == 1 ? sizeof(leaf) : sizeof(node));
            if (!made) {
                prune(index, path, start);
                return NULL;
            }
            at->children[which] = made;
            at->used |= UINT64_C(1) << which;
        }
        at = at->children[which];
    }
    return (leaf *)(void *)at;
}

/* The leaf of `start`, or NULL. */
static inline leaf *find_leaf(const strata_address_index *index, CUdeviceptr start)
{
    unsigned shift = GRANULE_BITS + BITS * index->top;
    void *at = start >> shift >> BITS == index->prefix ? index->root : NULL;
    for (; at && shift > GRANULE_BITS; shift -= BITS)
        at = ((node *)at)->children[start >> shift & (WIDTH - 1)];
    return at;
}

uint32_t strata_index_at(const strata_address_index *index, CUdeviceptr start)
{
    const leaf *last = find_leaf(index, start);
    return last ? last->slots[digit(start, 0)] : 0;
}

bool strata_index_insert(strata_address_index *index, CUdeviceptr start, uint32_t slot)
{
    leaf *last = find_leaf(index, start);
    if (!last && !(last = make_leaf(index, start)))
        return false;
    last->slots[digit(start, 0)] = slot;
    last->used |= UINT64_C(1) << digit(start, 0);
    return true;
}

void strata_index_remove(strata_address_index *index, CUdeviceptr start)
{
    node *path[LEVELS] = {NULL};
    node *at = index->root && above(start, index->top) == index->prefix ? index->root : NULL;
    for (unsigned level = index->top; at && level > 0; level--) {
        path[level] = at;
        at = at->children[digit(start, level)];
    }
    if (!at)
        return;
    leaf *last = (leaf *)(void *)at;
    last->used &= ~(UINT64_C(1) << digit(start, 0));
    last->slots[digit(start, 0)] = 0;
    if (!last->used)
        prune(index, path, start);
}

/* The last slot in a subtree that starts at `base`. */
static uint32_t last_of(const void *subtree, unsigned level, CUdeviceptr base, CUdeviceptr *start)
{
    for (; level > 0; level--) {
        const node *at = subtree;
        unsigned which = (unsigned)(63 - __builtin_clzll(at->used));
        base = with_digit(base, level, which);
        subtree = at->children[which];
    }
    const leaf *last = subtree;
    unsigned which = (unsigned)(63 - __builtin_clzll(last->used));
    *start = with_digit(base, 0, which);
    return last->slots[which];
}

static uint32_t first_of(const void *subtree, unsigned level, CUdeviceptr base, CUdeviceptr *start)
{
    for (; level > 0; level--) {
        const node *at = subtree;
        unsigned which = (unsigned)__builtin_ctzll(at->used);
        base = with_digit(base, level, which);
        subtree = at->children[which];
    }
    const leaf *last = subtree;
    unsigned which = (unsigned)__builtin_ctzll(last->used);
    *start = with_digit(base, 0, which);
    return last->slots[which];
}

/* Walks down towards `address`, remembering the nodes; at the leaf, *found is it, or NULL if the way ends earlier.
 * Returns the lowest level that was reached. */
static unsigned descend(const strata_address_index *index, CUdeviceptr address, const node **path, const leaf **found)
{
    const void *at = index->root;
    unsigned level = index->top;
    *found = NULL;
    for (; level > 0; level--) {
        path[level] = at;
        at = path[level]->children[digit(address, level)];
        if (!at)
            return level;
    }
    *found = at;
    return 0;
}

uint32_t strata_index_floor(const strata_address_index *index, CUdeviceptr address, CUdeviceptr *start)
{
    *start = 0;
    if (!index->root || above(address, index->top) < index->prefix)
        return 0;
    if (above(address, index->top) > index->prefix)
        return last_of(index->root, index->top, first_address(index), start);
    const node *path[LEVELS];
    const leaf *last;
    unsigned level = descend(index, address, path, &last);
    if (last) {
        uint64_t below = last->used & (UINT64_MAX >> (63 - digit(address, 0)));
        if (below) {
            unsigned which = (unsigned)(63 - __builtin_clzll(below));
            *start = with_digit(address, 0, which);
            return last->slots[which];
        }
        level = 1;
    }
    for (; level <= index->top; level++) {
        uint64_t below = path[level]->used & ((UINT64_C(1) << digit(address, level)) - 1);
        if (!below)
            continue;
        unsigned which = (unsigned)(63 - __builtin_clzll(below));
        return last_of(path[level]->children[which], level - 1, with_digit(address, level, which), start);
    }
    return 0;
}

uint32_t strata_index_ceiling(const strata_address_index *index, CUdeviceptr address, CUdeviceptr *start)
{
    const CUdeviceptr granule = (CUdeviceptr)1 << GRANULE_BITS;
    *start = 0;
    if (!index->root || address > UINT64_MAX - granule)
        return 0;
    address = (address + granule - 1) & ~(granule - 1);
    if (above(address, index->top) > index->prefix)
        return 0;
    if (above(address, index->top) < index->prefix)
        return first_of(index->root, index->top, first_address(index), start);
    const node *path[LEVELS];
    const leaf *last;
    unsigned level = descend(index, address, path, &last);
    if (last) {
        uint64_t higher = last->used & (UINT64_MAX << digit(address, 0));
        if (higher) {
            unsigned which = (unsigned)__builtin_ctzll(higher);
            *start = with_digit(address, 0, which);
            return last->slots[which];
        }
        level = 1;
    }
    for (; level <= index->top; level++) {
        uint64_t higher = path[level]->used & ~(UINT64_MAX >> (63 - digit(address, level)));
        if (!higher)
            continue;
        unsigned which = (unsigned)__builtin_ctzll(higher);
        return first_of(path[level]->children[which], level - 1, with_digit(address, level, which), start);
    }
    return 0;
}

static void free_subtree(void *subtree, unsigned level)
{
    if (subtree && level > 0) {
        node *at = subtree;
        for (unsigned i = 0; i < WIDTH; i++)
            free_subtree(at->children[i], level - 1);
    }
    strata_host_free(subtree);
}

void strata_index_end(strata_address_index *index)
{
    free_subtree(index->root, index->top);
    index->root = NULL;
}
