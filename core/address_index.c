/* The trie behind the address index. Level 0 is the leaf level; a node exists only while something is below it.
 *
 * A start that is alone below its place in a node needs nothing below it: the place itself says which start it is. So
 * blocks that lie far apart, each in a leaf that it would have for itself, cost a word each. Such a place holds,
 * instead of an address, an odd word: the start's digits below the place, 24 bits of slot, and the one that makes it
 * odd. */
#include "core/address_index.h"

#include "core/blocks.h"
#include "core/memory.h"

#include <stddef.h>

enum {
    BITS = 6,
    WIDTH = 1 << BITS,
    GRANULE_BITS = 8,
    LEVELS = 8, /* 8 + 8 * 6 = 56 bits of address */
    SLOT_BITS = 24,
    LONE_LEVEL = 6, /* the highest level whose places can hold a lone start: 6 * 6 + 24 + 1 bits */
};

_Static_assert((UINT64_C(1) << SLOT_BITS) >= (uint64_t)STRATA_ENTRY_CHUNK * STRATA_ENTRY_CHUNKS, "a slot fits");
_Static_assert(LONE_LEVEL *BITS + SLOT_BITS + 1 <= 64, "a lone start fits");

typedef struct leaf {
    uint64_t used;
    uint32_t slots[WIDTH];
} leaf;

/* The address of a leaf or node, or a lone start. */
typedef uint64_t place;

typedef struct node {
    uint64_t used;
    place places[WIDTH];
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

/* ---- lone starts ---- */

static inline bool is_lone(place at)
{
    return at & 1;
}

/* `start`, with `shift` bits below its place. */
static inline place lone_place(CUdeviceptr start, unsigned shift, uint32_t slot)
{
    uint64_t digits = (start & (((CUdeviceptr)1 << shift) - 1)) >> GRANULE_BITS;
    return digits << (SLOT_BITS + 1) | (uint64_t)slot << 1 | 1;
}

static inline uint32_t lone_slot(place at)
{
    return (uint32_t)(at >> 1) & ((UINT32_C(1) << SLOT_BITS) - 1);
}

/* The bits of the start below its place. */
static inline CUdeviceptr lone_low(place at)
{
    return (CUdeviceptr)(at >> (SLOT_BITS + 1)) << GRANULE_BITS;
}

static inline bool lone_is(place at, CUdeviceptr start, unsigned shift)
{
    return lone_low(at) == (start & (((CUdeviceptr)1 << shift) - 1));
}

/* The lone start in the place of `start` in a node of `level`. */
static CUdeviceptr lone_start(place at, CUdeviceptr start, unsigned level)
{
    unsigned shift = GRANULE_BITS + BITS * level;
    return start >> shift << shift | lone_low(at);
}

static inline void *below(place at)
{
    return (void *)(uintptr_t)at;
}

/* ---- changing ---- */

static void clear_place(node *at, unsigned which)
{
    at->places[which] = 0;
    at->used &= ~(UINT64_C(1) << which);
}

static void set_place(node *at, unsigned which, place what)
{
    at->places[which] = what;
    at->used |= UINT64_C(1) << which;
}

/* Takes the empty nodes on the way to `start` away, lowest first: those of `path`, and what is empty below the lowest.
 */
static void prune(strata_address_index *index, node *const *path, CUdeviceptr start)
{
    for (unsigned level = 1; level <= index->top; level++) {
        node *parent = path[level];
        if (!parent)
            continue;
        unsigned which = digit(start, level);
        place at = parent->places[which];
        if (is_lone(at) || (at && *(uint64_t *)below(at)))
            return;
        strata_host_free(below(at));
        clear_place(parent, which);
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
        set_place(root, (unsigned)index->prefix & (WIDTH - 1), (uintptr_t)index->root);
        index->root = root;
        index->prefix >>= BITS;
        index->top++;
    }
    return index->root != NULL;
}

/* Puts a leaf or node into a place of a node of `level` that is empty or has a lone start, which goes below it. False
 * without host memory: then nothing changed. */
static bool grow(node *at, unsigned which, unsigned level)
{
    place had = at->places[which];
    void *made = strata_host_zalloc(level == 1 ? sizeof(leaf) : sizeof(node));
    if (!made)
        return false;
    if (is_lone(had) && level == 1) {
        leaf *last = made;
        last->slots[digit(lone_low(had), 0)] = lone_slot(had);
        last->used = UINT64_C(1) << digit(lone_low(had), 0);
    } else if (is_lone(had)) {
        CUdeviceptr low = lone_low(had);
        set_place(made, digit(low, level - 1), lone_place(low, GRANULE_BITS + BITS * (level - 1), lone_slot(had)));
    }
    set_place(at, which, (uintptr_t)made);
    return true;
}

/* Enters a start that has no leaf. */
static bool enter(strata_address_index *index, CUdeviceptr start, uint32_t slot)
{
    node *path[LEVELS] = {NULL};
    if (!raise_root(index, start))
        return false;
    node *at = index->root;
    for (unsigned level = index->top; level > 0; level--) {
        path[level] = at;
        unsigned which = digit(start, level), shift = GRANULE_BITS + BITS * level;
        place has = at->places[which];
        if ((!has && level <= LONE_LEVEL) || (is_lone(has) && lone_is(has, start, shift))) {
            set_place(at, which, lone_place(start, shift, slot));
            return true;
        }
        if ((!has || is_lone(has)) && !grow(at, which, level)) {
            prune(index, path, start);
            return false;
        }
        at = below(at->places[which]);
    }
    leaf *last = (leaf *)(void *)at;
    last->slots[digit(start, 0)] = slot;
    last->used |= UINT64_C(1) << digit(start, 0);
    return true;
}

/* Where the way to `start` ends, with how many bits of it below: at a leaf, at a lone start, or 0. */
static inline place find_end(const strata_address_index *index, CUdeviceptr start, unsigned *shift)
{
    *shift = GRANULE_BITS + BITS * index->top;
    place at = start >> *shift >> BITS == index->prefix ? (uintptr_t)index->root : 0;
    for (; at && !is_lone(at) && *shift > GRANULE_BITS; *shift -= BITS)
        at = ((const node *)below(at))->places[start >> *shift & (WIDTH - 1)];
    return at;
}

uint32_t strata_index_at(const strata_address_index *index, CUdeviceptr start)
{
    unsigned shift;
    place at = find_end(index, start, &shift);
    if (is_lone(at))
        return lone_is(at, start, shift + BITS) ? lone_slot(at) : 0;
    return at ? ((const leaf *)below(at))->slots[digit(start, 0)] : 0;
}

bool strata_index_insert(strata_address_index *index, CUdeviceptr start, uint32_t slot)
{
    unsigned shift;
    place at = find_end(index, start, &shift);
    if (!at || is_lone(at))
        return enter(index, start, slot);
    leaf *last = below(at);
    last->slots[digit(start, 0)] = slot;
    last->used |= UINT64_C(1) << digit(start, 0);
    return true;
}

void strata_index_remove(strata_address_index *index, CUdeviceptr start)
{
    node *path[LEVELS] = {NULL};
    place at = index->root && above(start, index->top) == index->prefix ? (uintptr_t)index->root : 0;
    unsigned level = index->top;
    for (; at && !is_lone(at) && level > 0; level--) {
        path[level] = below(at);
        at = path[level]->places[digit(start, level)];
    }
    if (!at)
        return;
    if (is_lone(at)) {
        if (!lone_is(at, start, GRANULE_BITS + BITS * (level + 1)))
            return;
        clear_place(path[level + 1], digit(start, level + 1));
        if (!path[level + 1]->used)
            prune(index, path, start);
        return;
    }
    leaf *last = below(at);
    last->used &= ~(UINT64_C(1) << digit(start, 0));
    last->slots[digit(start, 0)] = 0;
    if (!last->used)
        prune(index, path, start);
}

/* ---- searching ---- */

/* The last slot below a place in a subtree whose addresses begin at `base`. */
static uint32_t last_of(place at, unsigned level, CUdeviceptr base, CUdeviceptr *start)
{
    for (; !is_lone(at) && level > 0; level--) {
        const node *inside = below(at);
        unsigned which = (unsigned)(63 - __builtin_clzll(inside->used));
        base = with_digit(base, level, which);
        at = inside->places[which];
    }
    if (is_lone(at)) {
        *start = base | lone_low(at);
        return lone_slot(at);
    }
    const leaf *last = below(at);
    unsigned which = (unsigned)(63 - __builtin_clzll(last->used));
    *start = with_digit(base, 0, which);
    return last->slots[which];
}

static uint32_t first_of(place at, unsigned level, CUdeviceptr base, CUdeviceptr *start)
{
    for (; !is_lone(at) && level > 0; level--) {
        const node *inside = below(at);
        unsigned which = (unsigned)__builtin_ctzll(inside->used);
        base = with_digit(base, level, which);
        at = inside->places[which];
    }
    if (is_lone(at)) {
        *start = base | lone_low(at);
        return lone_slot(at);
    }
    const leaf *last = below(at);
    unsigned which = (unsigned)__builtin_ctzll(last->used);
    *start = with_digit(base, 0, which);
    return last->slots[which];
}

/* Walks down towards `address`, remembering the nodes; *end is the leaf at the end of the way, the lone start, or 0.
 * Returns the lowest level that was reached: the leaf's, or that of the node whose place is the end. */
static unsigned descend(const strata_address_index *index, CUdeviceptr address, const node **path, place *end)
{
    *end = (uintptr_t)index->root;
    unsigned level = index->top;
    for (; level > 0; level--) {
        path[level] = below(*end);
        *end = path[level]->places[digit(address, level)];
        if (!*end || is_lone(*end))
            return level;
    }
    return 0;
}

uint32_t strata_index_floor(const strata_address_index *index, CUdeviceptr address, CUdeviceptr *start)
{
    *start = 0;
    if (!index->root || above(address, index->top) < index->prefix)
        return 0;
    if (above(address, index->top) > index->prefix)
        return last_of((uintptr_t)index->root, index->top, first_address(index), start);
    const node *path[LEVELS];
    place end;
    unsigned level = descend(index, address, path, &end);
    if (is_lone(end) && lone_start(end, address, level) <= address) {
        *start = lone_start(end, address, level);
        return lone_slot(end);
    }
    if (level == 0) {
        const leaf *last = below(end);
        uint64_t lower = last->used & (UINT64_MAX >> (63 - digit(address, 0)));
        if (lower) {
            unsigned which = (unsigned)(63 - __builtin_clzll(lower));
            *start = with_digit(address, 0, which);
            return last->slots[which];
        }
        level = 1;
    }
    for (; level <= index->top; level++) {
        uint64_t lower = path[level]->used & ((UINT64_C(1) << digit(address, level)) - 1);
        if (!lower)
            continue;
        unsigned which = (unsigned)(63 - __builtin_clzll(lower));
        return last_of(path[level]->places[which], level - 1, with_digit(address, level, which), start);
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
        return first_of((uintptr_t)index->root, index->top, first_address(index), start);
    const node *path[LEVELS];
    place end;
    unsigned level = descend(index, address, path, &end);
    if (is_lone(end) && lone_start(end, address, level) >= address) {
        *start = lone_start(end, address, level);
        return lone_slot(end);
    }
    if (level == 0) {
        const leaf *last = below(end);
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
        return first_of(path[level]->places[which], level - 1, with_digit(address, level, which), start);
    }
    return 0;
}

static void free_subtree(place at, unsigned level)
{
    if (!at || is_lone(at))
        return;
    if (level > 0) {
        const node *inside = below(at);
        for (unsigned i = 0; i < WIDTH; i++)
            free_subtree(inside->places[i], level - 1);
    }
    strata_host_free(below(at));
}

void strata_index_end(strata_address_index *index)
{
    free_subtree((uintptr_t)index->root, index->top);
    index->root = NULL;
}
