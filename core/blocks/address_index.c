/* The trie of the address index. A node has up to 64 values, one for each digit. At level 0, the leaf level, values are
 * slots. Above, a value is a child, a tagged word:
 *
 *     0                  nothing
 *     an odd word        a lone start: its digits below the child, 24 bits of slot, and the lowest bit
 *     address + 8 + 2n   a bucket of 2n + 2 words, up to eight: lone starts in no order, or 0
 *     address            a node
 *
 * Up to eight starts below a child are lone or in a bucket: blocks far apart need no nodes. A node has the values of
 * its digits side by side; from some number on, and in the root, a value for every digit, found without counting. A
 * shrinking node keeps some room: a start which comes and goes does not allocate each time.
 *
 * An insertion creates the new part of the trie before it links it: a failed one changes nothing. Its functions return
 * false or 0 without host memory. */
#include "core/blocks/address_index.h"

#include "core/base/host_memory.h"
#include "core/blocks/blocks.h"

#include <stddef.h>
#include <string.h>

enum {
    BITS = 6,
    WIDTH = 1 << BITS,
    GRANULE_BITS = 8,
    LEVELS = 8, /* 8 + 8 * 6 = 56 bits of address */
    SLOT_BITS = 24,
    LAST_SLOT = (1 << SLOT_BITS) - 1,
    LONE_LEVEL = 6,   /* the highest level with lone starts: 6 * 6 + 24 + 1 bits */
    BUCKET = 8,       /* most starts of a bucket */
    FEW = BUCKET / 2, /* a node with so few becomes a bucket */
    IN_BUCKET = 8,    /* marks a child as one */
};

_Static_assert((UINT64_C(1) << SLOT_BITS) >= (uint64_t)STRATA_ENTRY_CHUNK * STRATA_ENTRY_CHUNKS, "a slot fits");
_Static_assert(LEVELS - 1 <= LONE_LEVEL + 1, "below a place without a lone start is a node with one");
_Static_assert(LONE_LEVEL *BITS + SLOT_BITS + 1 <= 64, "a lone start fits");

typedef uint64_t child;

typedef struct node {
    uint64_t used; /* bit set of the digits that have a value */
    uint16_t room; /* values; WIDTH: one for every digit, 0 if unused */
    uint16_t count;
    uint16_t low; /* a node with so few values shrinks */
    uint16_t unused;
    child children[]; /* of a leaf: uint32_t slots[] */
} node;

/* Rooms of leaves, of nodes. With the 16 bytes before the values, size classes of the allocator except the last. */
static const uint8_t rooms[2][16] = {
    {4, 8, 12, 16, 20, 24, 28, WIDTH},
    {2, 4, 6, 8, 10, 14, 18, 22, 26, 30, 38, 46, 54, WIDTH},
};

/* ---- digits ---- */

static inline unsigned shift_of(unsigned level)
{
    return GRANULE_BITS + BITS * level;
}

static inline unsigned digit(CUdeviceptr address, unsigned level)
{
    return (unsigned)(address >> shift_of(level)) & (WIDTH - 1);
}

static inline CUdeviceptr above(CUdeviceptr address, unsigned level)
{
    return address >> shift_of(level) >> BITS;
}

static inline CUdeviceptr low_of(CUdeviceptr address, unsigned level)
{
    return address & (((CUdeviceptr)1 << shift_of(level)) - 1);
}

static CUdeviceptr first_address(const strata_address_index *index)
{
    return index->prefix << shift_of(index->top) << BITS;
}

/* The first address below a digit of the node that `address` is below. */
static CUdeviceptr with_digit(CUdeviceptr address, unsigned level, unsigned value)
{
    return above(address, level) << BITS << shift_of(level) | (CUdeviceptr)value << shift_of(level);
}

static inline unsigned count_bits(uint64_t word)
{
#if defined(__POPCNT__) || defined(__aarch64__)
    return (unsigned)__builtin_popcountll(word);
#else /* the compilers' builtin is a call there */
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(word * UINT64_C(0x0101010101010101) >> 56);
#endif
}

static inline uint64_t bit(unsigned which)
{
    return UINT64_C(1) << which;
}

/* ---- children ---- */

static inline bool is_lone(child at)
{
    return at & 1;
}

static inline bool is_bucket(child at)
{
    return (at & (IN_BUCKET | 1)) == IN_BUCKET;
}

static inline bool is_node(child at)
{
    return !(at & (IN_BUCKET | 1));
}

static inline child lone_child(CUdeviceptr start, unsigned level, uint32_t slot)
{
    return low_of(start, level) >> GRANULE_BITS << (SLOT_BITS + 1) | (uint64_t)slot << 1 | 1;
}

static inline uint32_t lone_slot(child at)
{
    return (uint32_t)(at >> 1) & LAST_SLOT;
}

/* A lone start's address bits below the child. */
static inline CUdeviceptr lone_low(child at)
{
    return (CUdeviceptr)(at >> (SLOT_BITS + 1)) << GRANULE_BITS;
}

static inline node *node_at(child at)
{
    return (node *)(uintptr_t)at;
}

static inline child *bucket_at(child at)
{
    return (child *)(uintptr_t)(at & ~(child)15);
}

static inline unsigned bucket_room(child at)
{
    return (unsigned)(at & 6) + 2;
}

/* The word with these bits below the child, or NULL. */
static inline child *in_bucket(child at, CUdeviceptr low)
{
    child *words = bucket_at(at);
    for (unsigned i = 0; i < bucket_room(at); i++)
        if (words[i] && lone_low(words[i]) == low)
            return &words[i];
    return NULL;
}

/* ---- nodes ---- */

static inline uint32_t *slots_of(const node *leaf)
{
    return (uint32_t *)(uintptr_t)leaf->children;
}

static inline size_t width_of(unsigned level)
{
    return level ? sizeof(child) : sizeof(uint32_t);
}

/* The index of a digit's value, present or not. */
static inline unsigned position(const node *at, unsigned which)
{
    return at->room == WIDTH ? which : count_bits(at->used & (bit(which) - 1));
}

static inline bool has(const node *at, unsigned which)
{
    return at->used >> which & 1;
}

static inline child *find_child(node *at, unsigned which)
{
    if (__builtin_expect(at->room == WIDTH, 1))
        return at->children[which] ? &at->children[which] : NULL;
    return has(at, which) ? &at->children[position(at, which)] : NULL;
}

static inline child get_child(const node *at, unsigned which)
{
    if (__builtin_expect(at->room == WIDTH, 1))
        return at->children[which];
    return has(at, which) ? at->children[position(at, which)] : 0;
}

static inline uint32_t get_slot(const node *leaf, unsigned which)
{
    if (__builtin_expect(leaf->room == WIDTH, 1))
        return slots_of(leaf)[which];
    return has(leaf, which) ? slots_of(leaf)[position(leaf, which)] : 0;
}

static inline unsigned step_for(unsigned level, unsigned count)
{
    unsigned step = 0;
    while (rooms[level > 0][step] < count)
        step++;
    return step;
}

static node *make_node(unsigned level, unsigned count)
{
    const uint8_t *room = &rooms[level > 0][0];
    const unsigned step = step_for(level, count);
    node *made = strata_host_zalloc(sizeof *made + room[step] * width_of(level));
    if (!made)
        return NULL;
    made->room = room[step];
    made->low = step >= 2 && room[step - 2] > FEW ? room[step - 2] : FEW;
    return made;
}

/* Makes room for the value of an unused digit, in a node that has room. Returns its index. */
static inline unsigned insert_value(node *at, unsigned which, size_t width)
{
    const unsigned to = position(at, which);
    if (at->room != WIDTH) {
        char *values = (char *)at->children + to * width;
        memmove(values + width, values, (at->count - to) * width);
    }
    at->used |= bit(which);
    at->count++;
    return to;
}

static inline void remove_value(node *at, unsigned which, unsigned from, size_t width)
{
    at->used &= ~bit(which);
    at->count--;
    char *values = (char *)at->children + from * width;
    if (at->room == WIDTH)
        memset(values, 0, width);
    else
        memmove(values, values + width, (at->count - from) * width);
}

/* Copies values to a node of another layout. */
static void spread(node *to, const node *from, unsigned level)
{
    unsigned next = 0;
    for (uint64_t left = from->used; left; left &= left - 1, next++) {
        const unsigned which = (unsigned)__builtin_ctzll(left);
        const unsigned at = to->room == WIDTH ? which : next, was = from->room == WIDTH ? which : next;
        if (level)
            to->children[at] = from->children[was];
        else
            slots_of(to)[at] = slots_of(from)[was];
    }
}

static __attribute__((noinline)) bool resize(child *link, unsigned level, unsigned count)
{
    node *from = node_at(*link), *made = make_node(level, count);
    if (!made)
        return false;
    if (made->room == WIDTH || from->room == WIDTH)
        spread(made, from, level);
    else
        memcpy(made->children, from->children, from->count * width_of(level));
    made->used = from->used;
    made->count = from->count;
    *link = (uintptr_t)made;
    strata_host_free(from);
    return true;
}

/* `level` is that of a node in the child. */
static void free_below(child at, unsigned level)
{
    if (!at || is_lone(at))
        return;
    if (is_bucket(at)) {
        strata_host_free(bucket_at(at));
        return;
    }
    node *gone = node_at(at);
    for (uint64_t left = level ? gone->used : 0; left; left &= left - 1)
        free_below(get_child(gone, (unsigned)__builtin_ctzll(left)), level - 1);
    strata_host_free(gone);
}

/* ---- finding ---- */

uint32_t strata_index_at(const strata_address_index *index, CUdeviceptr start)
{
    if (!index->root || above(start, index->top) != index->prefix)
        return 0;
    unsigned level = index->top;
    const node *at = index->root;
    for (; level; level--) {
        const child next = get_child(at, digit(start, level));
        if (__builtin_expect(!is_node(next), 0)) {
            const CUdeviceptr low = low_of(start, level);
            if (is_lone(next))
                return lone_low(next) == low ? lone_slot(next) : 0;
            const child *found = in_bucket(next, low);
            return found ? lone_slot(*found) : 0;
        }
        if (!next)
            return 0;
        at = node_at(next);
    }
    return get_slot(at, digit(start, 0));
}

/* ---- inserting ---- */

/* Raises the root until `start` is below it. After a failure the index is valid. */
static __attribute__((noinline)) bool raise_root(strata_address_index *index, CUdeviceptr start)
{
    if (above(start, LEVELS - 1))
        return false;
    if (!index->root) {
        index->root = make_node(1, WIDTH);
        index->top = 1;
        index->prefix = above(start, 1);
    }
    while (index->root && above(start, index->top) != index->prefix) {
        node *root = make_node(1, WIDTH);
        if (!root)
            return false;
        const unsigned which = (unsigned)index->prefix & (WIDTH - 1);
        insert_value(root, which, sizeof(child));
        root->children[which] = (uintptr_t)index->root;
        index->root = root;
        index->prefix >>= BITS;
        index->top++;
    }
    return index->root != NULL;
}

static bool enter(child *link, unsigned level, CUdeviceptr start, uint32_t slot);

/* A bucket of lone starts, or the only one itself. */
static child make_bucket(const child *words, unsigned count)
{
    if (count == 1)
        return words[0];
    const unsigned room = (count + 1) & ~1U;
    child *made = strata_host_zalloc(room * sizeof *made);
    if (!made)
        return 0;
    memcpy(made, words, count * sizeof *made);
    return (uintptr_t)made | IN_BUCKET | (room - 2);
}

/* A node of `level` from a full bucket and another start. */
static child burst(child full, unsigned level, CUdeviceptr start, uint32_t slot)
{
    const child *words = bucket_at(full);
    uint64_t digits = bit(digit(start, level));
    for (unsigned i = 0; i < BUCKET; i++)
        digits |= bit(digit(lone_low(words[i]), level));
    child made = (uintptr_t)make_node(level, count_bits(digits));
    bool whole = made && enter(&made, level, start, slot);
    for (unsigned i = 0; i < BUCKET && whole; i++)
        whole = enter(&made, level, lone_low(words[i]), lone_slot(words[i]));
    if (whole)
        return made;
    free_below(made, level);
    return 0;
}

/* Adds a start to a full bucket or a lone start. */
static __attribute__((noinline)) bool crowd(child *to, unsigned level, CUdeviceptr start, uint32_t slot)
{
    const unsigned room = is_lone(*to) ? 1 : bucket_room(*to);
    child made;
    if (room < BUCKET) {
        child words[BUCKET];
        memcpy(words, is_lone(*to) ? to : bucket_at(*to), room * sizeof *words);
        words[room] = lone_child(start, level, slot);
        made = make_bucket(words, room + 1);
    } else {
        made = burst(*to, level - 1, start, slot);
    }
    if (!made)
        return false;
    if (!is_lone(*to))
        strata_host_free(bucket_at(*to));
    *to = made;
    return true;
}

/* Stores a start over itself, or in an empty word. */
static bool put_in_bucket(child to, CUdeviceptr low, child lone)
{
    child *words = bucket_at(to), *found = NULL;
    for (unsigned i = 0; i < bucket_room(to); i++) {
        if (!words[i])
            found = &words[i];
        else if (lone_low(words[i]) == low) {
            found = &words[i];
            break;
        }
    }
    if (found)
        *found = lone;
    return found;
}

/* Adds a start to a bucket or a lone start. */
static bool add_start(child *to, unsigned level, CUdeviceptr start, uint32_t slot)
{
    const child lone = lone_child(start, level, slot);
    const CUdeviceptr low = low_of(start, level);
    if (is_lone(*to) && lone_low(*to) == low) {
        *to = lone;
        return true;
    }
    if (!is_lone(*to) && put_in_bucket(*to, low, lone))
        return true;
    return crowd(to, level, start, slot);
}

static inline bool widen(child *link, unsigned level)
{
    const node *at = node_at(*link);
    return at->room == WIDTH || at->count < at->room || resize(link, level, at->room + 1U);
}

/* The child of `level` for its first start. */
static child first_start(unsigned level, CUdeviceptr start, uint32_t slot)
{
    if (level <= LONE_LEVEL)
        return lone_child(start, level, slot);
    node *made = make_node(level - 1, 1);
    if (!made)
        return 0;
    insert_value(made, digit(start, level - 1), sizeof(child));
    made->children[0] = lone_child(start, level - 1, slot);
    return (uintptr_t)made;
}

/* Inserts a start whose digit the node of `level` lacks. */
static bool add_digit(child *link, unsigned level, CUdeviceptr start, uint32_t slot)
{
    const child made = widen(link, level) ? first_start(level, start, slot) : 0;
    if (!made)
        return false;
    node *at = node_at(*link);
    const unsigned which = digit(start, level);
    at->children[insert_value(at, which, sizeof made)] = made;
    return true;
}

static bool put_slot(child *link, unsigned which, uint32_t slot)
{
    if (has(node_at(*link), which)) {
        slots_of(node_at(*link))[position(node_at(*link), which)] = slot;
        return true;
    }
    if (!widen(link, 0))
        return false;
    node *leaf = node_at(*link);
    slots_of(leaf)[insert_value(leaf, which, sizeof slot)] = slot;
    return true;
}

/* Inserts a start below the node of `level`. */
static bool enter(child *link, unsigned level, CUdeviceptr start, uint32_t slot)
{
    node *at = node_at(*link);
    for (; level; level--) {
        child *next = find_child(at, digit(start, level));
        if (!next)
            return add_digit(link, level, start, slot);
        if (!is_node(*next))
            return add_start(next, level, start, slot);
        link = next;
        at = node_at(*link);
    }
    return put_slot(link, digit(start, 0), slot);
}

bool strata_index_insert(strata_address_index *index, CUdeviceptr start, uint32_t slot)
{
    if (__builtin_expect(!index->root || above(start, index->top) != index->prefix, 0) && !raise_root(index, start))
        return false;
    child root = (uintptr_t)index->root; /* has a value for every digit */
    const bool entered = enter(&root, index->top, start, slot);
    if (!entered && !((node *)index->root)->used) {
        strata_host_free(index->root);
        index->root = NULL;
    }
    return entered;
}

/* ---- removing ---- */

/* Appends a child's starts as words of a child of `level`. False: too many, or a node. */
static bool collect(child at, unsigned level, CUdeviceptr low, child *words, unsigned *count)
{
    if (is_node(at))
        return false;
    const child *from = is_lone(at) ? &at : bucket_at(at);
    const unsigned room = is_lone(at) ? 1 : bucket_room(at);
    for (unsigned i = 0; i < room; i++) {
        if (!from[i])
            continue;
        if (*count == FEW)
            return false;
        words[(*count)++] = lone_child(low | lone_low(from[i]), level, lone_slot(from[i]));
    }
    return true;
}

/* A node's starts as a bucket. 0: too many, or no host memory. */
static child as_bucket(const node *at, unsigned level)
{
    child words[FEW];
    unsigned count = 0;
    if (at->count > FEW || level + 1 > LONE_LEVEL)
        return 0;
    for (uint64_t left = at->used; left; left &= left - 1) {
        const unsigned which = (unsigned)__builtin_ctzll(left);
        const CUdeviceptr low = (CUdeviceptr)which << shift_of(level);
        const child inside = level ? get_child(at, which) : lone_child(0, 0, get_slot(at, which));
        if (!collect(inside, level + 1, low, words, &count))
            return 0;
    }
    return make_bucket(words, count);
}

/* Shrinks nodes with few values, from `level` upwards on the path to `start`. */
static __attribute__((noinline)) void narrow(strata_address_index *index, node *const *path, unsigned level,
                                             CUdeviceptr start)
{
    for (; level < index->top; level++) {
        node *at = path[level], *parent = path[level + 1];
        const unsigned which = digit(start, level + 1);
        child *link = &parent->children[position(parent, which)], bucket;
        if (at->count > at->low)
            return;
        if (!at->count) {
            strata_host_free(at);
            remove_value(parent, which, position(parent, which), sizeof(child));
        } else if ((bucket = as_bucket(at, level))) {
            free_below(*link, level);
            *link = bucket;
        } else {
            if (rooms[level > 0][step_for(level, at->count + 1U)] < at->room)
                resize(link, level, at->count + 1U); /* without memory it keeps its size */
            return;
        }
    }
    if (((node *)index->root)->count)
        return;
    strata_host_free(index->root);
    index->root = NULL;
}

/* False: the bucket was empty and is freed. */
static __attribute__((noinline)) bool narrow_bucket(child *from, unsigned count)
{
    child *words = bucket_at(*from), left[BUCKET];
    unsigned kept = 0;
    for (unsigned i = 0; i < bucket_room(*from); i++)
        if (words[i])
            left[kept++] = words[i];
    const child made = count ? make_bucket(left, count) : 0;
    if (count && !made)
        return true; /* without memory it keeps its size */
    strata_host_free(words);
    *from = made;
    return count > 0;
}

/* False: the bucket was empty and is freed. */
static inline bool take_out(child *from, child *gone)
{
    const child *words = bucket_at(*from);
    const unsigned room = bucket_room(*from);
    unsigned count = 0;
    *gone = 0;
    for (unsigned i = 0; i < room; i++)
        count += words[i] != 0;
    return count && 2 * count >= room ? true : narrow_bucket(from, count);
}

void strata_index_remove(strata_address_index *index, CUdeviceptr start)
{
    node *path[LEVELS];
    if (!index->root || above(start, index->top) != index->prefix)
        return;
    unsigned level = index->top;
    path[level] = index->root;
    for (; level; level--) {
        node *at = path[level];
        const unsigned which = digit(start, level);
        child *next = find_child(at, which);
        if (!next)
            return;
        if (is_node(*next)) {
            path[level - 1] = node_at(*next);
            continue;
        }
        if (is_bucket(*next)) {
            child *found = in_bucket(*next, low_of(start, level));
            if (!found || take_out(next, found))
                return;
        } else if (lone_low(*next) != low_of(start, level)) {
            return;
        }
        remove_value(at, which, (unsigned)(next - at->children), sizeof(child));
        if (at->count <= at->low)
            narrow(index, path, level, start);
        return;
    }
    if (!has(path[0], digit(start, 0)))
        return;
    remove_value(path[0], digit(start, 0), position(path[0], digit(start, 0)), sizeof(uint32_t));
    if (path[0]->count <= path[0]->low)
        narrow(index, path, 0, start);
}

/* ---- searching ---- */

/* Words of lone starts are ordered like the starts. The last one not above a word, and the first one not below it; 0:
 * none. */
static inline child last_until(const child *words, unsigned room, child most)
{
    child found = 0;
    for (unsigned i = 0; i < room; i++)
        found = words[i] <= most && words[i] > found ? words[i] : found;
    return found;
}

static inline child first_from(const child *words, unsigned room, child least)
{
    child found = UINT64_MAX;
    for (unsigned i = 0; i < room; i++)
        found = words[i] >= least && words[i] < found ? words[i] : found;
    return found == UINT64_MAX ? 0 : found;
}

static inline child last_lone(child at, child most)
{
    return is_lone(at) ? last_until(&at, 1, most) : last_until(bucket_at(at), bucket_room(at), most);
}

static inline child first_lone(child at, child least)
{
    return is_lone(at) ? first_from(&at, 1, least) : first_from(bucket_at(at), bucket_room(at), least);
}

static inline uint32_t answer(child lone, CUdeviceptr base, CUdeviceptr *start)
{
    *start = base | lone_low(lone);
    return lone_slot(lone);
}

/* The last slot below a child whose addresses begin at `base`; `level` is that of a node in it. */
static uint32_t last_of(child at, unsigned level, CUdeviceptr base, CUdeviceptr *start)
{
    for (;; level--) {
        if (!is_node(at))
            return answer(last_lone(at, UINT64_MAX), base, start);
        const node *inside = node_at(at);
        const unsigned which = (unsigned)(63 - __builtin_clzll(inside->used));
        base = with_digit(base, level, which);
        if (!level) {
            *start = base;
            return get_slot(inside, which);
        }
        at = get_child(inside, which);
    }
}

static uint32_t first_of(child at, unsigned level, CUdeviceptr base, CUdeviceptr *start)
{
    for (;; level--) {
        if (!is_node(at))
            return answer(first_lone(at, 1), base, start);
        const node *inside = node_at(at);
        const unsigned which = (unsigned)__builtin_ctzll(inside->used);
        base = with_digit(base, level, which);
        if (!level) {
            *start = base;
            return get_slot(inside, which);
        }
        at = get_child(inside, which);
    }
}

/* Stores the nodes towards `address`; *end is the last child if it is no node. Returns the last node's level. */
static inline unsigned descend(const strata_address_index *index, CUdeviceptr address, const node **path, child *end)
{
    const node *at = index->root;
    unsigned level = index->top;
    *end = 0;
    for (;; level--) {
        path[level] = at;
        if (!level)
            return 0;
        const child next = get_child(at, digit(address, level));
        if (!next || !is_node(next)) {
            *end = next;
            return level;
        }
        at = node_at(next);
    }
}

uint32_t strata_index_floor(const strata_address_index *index, CUdeviceptr address, CUdeviceptr *start)
{
    *start = 0;
    if (!index->root || above(address, index->top) < index->prefix)
        return 0;
    if (above(address, index->top) > index->prefix)
        return last_of((uintptr_t)index->root, index->top, first_address(index), start);
    const node *path[LEVELS];
    child end;
    unsigned level = descend(index, address, path, &end);
    if (end) {
        const child found = last_lone(end, lone_child(address, level, LAST_SLOT));
        if (found)
            return answer(found, address - low_of(address, level), start);
    } else if (!level) {
        const uint64_t lower = path[0]->used & UINT64_MAX >> (63 - digit(address, 0));
        if (lower) {
            const unsigned which = (unsigned)(63 - __builtin_clzll(lower));
            *start = with_digit(address, 0, which);
            return get_slot(path[0], which);
        }
        level = 1;
    }
    for (; level <= index->top; level++) {
        const uint64_t lower = path[level]->used & (bit(digit(address, level)) - 1);
        if (!lower)
            continue;
        const unsigned which = (unsigned)(63 - __builtin_clzll(lower));
        return last_of(get_child(path[level], which), level - 1, with_digit(address, level, which), start);
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
    child end;
    unsigned level = descend(index, address, path, &end);
    if (end) {
        const child found = first_lone(end, lone_child(address, level, 0));
        if (found)
            return answer(found, address - low_of(address, level), start);
    } else if (!level) {
        const uint64_t higher = path[0]->used & UINT64_MAX << digit(address, 0);
        if (higher) {
            const unsigned which = (unsigned)__builtin_ctzll(higher);
            *start = with_digit(address, 0, which);
            return get_slot(path[0], which);
        }
        level = 1;
    }
    for (; level <= index->top; level++) {
        const uint64_t higher = path[level]->used & ~(UINT64_MAX >> (63 - digit(address, level)));
        if (!higher)
            continue;
        const unsigned which = (unsigned)__builtin_ctzll(higher);
        return first_of(get_child(path[level], which), level - 1, with_digit(address, level, which), start);
    }
    return 0;
}

void strata_index_destroy(strata_address_index *index)
{
    free_below((uintptr_t)index->root, index->top);
    index->root = NULL;
}
