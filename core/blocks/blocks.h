/* The table of blocks: one for each stack, an entry for each block, found by index and generation.
 *
 * An entry's word says which block lives there and how it is:
 *
 *     63 ................ 16 | 15 ........ 4 |   3    | 2 ... 0
 *          generation        |  shared pins  | locked |  state
 *
 * A generation that a user was given is given once. When an entry's generations are used up, it is never handed out
 * again.
 *
 * Quarantine. A layer that holds a freed block back takes it from its user under the next generation, with the state
 * QUARANTINED. To the user the block is freed; under its new identity, which that layer alone knows, everything is done
 * with it that is done with a live one, through the layers below. Only a search by address does not find it.
 *
 * Pins. A block is pinned between prepare and finish. The thread that made the block pins it in `own_pins`, which only
 * that thread writes, so that its fast path has no locked instruction; every other thread counts in the word. A free
 * looks at both. A free that races with an unsynchronized prepare may miss the pin of the owning thread: that program
 * has a bug which the finish reports, as the generation will have moved on. */
#ifndef STRATA_CORE_BLOCKS_BLOCKS_H
#define STRATA_CORE_BLOCKS_BLOCKS_H

#include "core/base/thread.h"
#include "core/streams/clock.h"
#include "core/streams/device.h"

#include <strata/block.h>
#include <strata/resource.h>

#define STRATA_WORD_STATE_MASK UINT64_C(0x7)
#define STRATA_WORD_LOCKED     UINT64_C(0x8)
#define STRATA_WORD_PIN        UINT64_C(0x10)
#define STRATA_WORD_PINS_MASK  UINT64_C(0xfff0)
#define STRATA_WORD_GENERATION 16
#define STRATA_GENERATION_LAST ((UINT64_C(1) << 48) - 1)

/* Points beyond the two that fit into an entry. */
typedef struct strata_more_points {
    uint32_t count, capacity;
    strata_point points[];
} strata_more_points;

typedef struct strata_entry {
    _Atomic uint64_t word;
    _Atomic uint64_t own_pins; /* generation and count of the owning thread's pins; written by that thread alone */
    /* Facts: written before the word says LIVE, constant while it does. Atomic, because a free that should not be may
     * read them while the entry becomes another block's; it looks at the word again before it believes them, and
     * whoever reads a new fact (acquire) sees that the word has left the old block (release). */
    _Atomic CUdeviceptr address;
    _Atomic uint64_t bytes, requested;
    _Atomic(CUstream) stream;
    union {
        struct {
            _Atomic strata_tag tag;
            _Atomic uint16_t alloc_timeline; /* number of the timeline on which it was allocated */
            _Atomic uint16_t owner;          /* number of the thread that made it; 0: none */
        };
        _Atomic uint64_t origin; /* these three, written as one: strata_entry_origin */
    };
    _Atomic strata_point last_write; /* the points change under the word's lock bit and may be read without it */
    _Atomic strata_point last_read;
    _Atomic(strata_more_points *) more;
    union {
        struct {
            union {
                _Atomic uint32_t
                    alloc_incarnation;      /* which of the streams that had the home timeline; atomic like home */
                _Atomic uint32_t next_free; /* while FREED: guarded by the table's lock */
            };
            _Atomic uint8_t alignment_log2;
            _Atomic bool alloc_known;    /* the stream on which it was allocated was known then */
            _Atomic bool touched;        /* a use was noted; any thread */
            _Atomic uint8_t quarantines; /* layers that hold it back, one above another. Changes under the word's lock
                                            bit. */
        };
        _Atomic uint64_t beginning; /* these five, written as one: strata_entry_beginning */
    };
} strata_entry;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the small members of an entry are written as words");

static inline uint64_t strata_entry_origin(strata_tag tag, uint16_t alloc_timeline, uint32_t owner)
{
    return tag | (uint64_t)alloc_timeline << 32 | (uint64_t)(uint16_t)owner << 48;
}

/* Of a block that nobody has used or holds back. */
static inline uint64_t strata_entry_beginning(uint32_t alloc_incarnation, size_t alignment, bool alloc_known)
{
    return alloc_incarnation | (uint64_t)__builtin_ctzll(alignment) << 32 | (uint64_t)alloc_known << 40;
}

struct strata_timeline;

enum {
    STRATA_ENTRY_CHUNK = 2048, /* entries */
    STRATA_ENTRY_CHUNKS = 8192,
};

typedef struct strata_table {
    uint32_t number; /* 1 ... STRATA_TABLE_LIMIT - 1 */
    uint32_t id; /* the number, and how often it was given, so that an identity of an earlier table is foreign: in 22
                    bits, so that one kept over four million stacks of this number would not be */
    uint32_t stride; /* bytes of an entry with its layers' bytes */
    int ordinal;     /* the device's */
    strata_device *device;
    _Atomic(char *) chunks[STRATA_ENTRY_CHUNKS]; /* set once each, under the lock */
    strata_lock lock;
    uint32_t fresh;      /* first entry that was never handed out; guarded by the lock */
    uint32_t free_slots; /* a chain through next_free, 0 ends it; guarded by the lock */
} strata_table;

/* A table for blocks of `device` with layer_bytes more in each entry. Errors: OUT_OF_HOST_MEMORY, BUSY (too many
 * tables). */
strata_status strata_table_create(strata_device *device, uint32_t layer_bytes, strata_table **out);

/* Ends a table; no block of it is live and no call in flight. */
void strata_table_destroy(strata_table *table);

/* What a stack begins with: this floor knows no more of it. */
typedef struct strata_stack_head {
    strata_table *table;
} strata_stack_head;

/* The table of a resource that is part of a stack. */
static inline strata_table *strata_resource_table(const strata_resource *resource)
{
    return ((const strata_stack_head *)(const void *)resource->stack)->table;
}

static inline uint32_t strata_table_id(const strata_table *table)
{
    return table->id;
}

static inline strata_entry *strata_table_entry(const strata_table *table, uint32_t slot)
{
    char *chunk = atomic_load_explicit(&table->chunks[slot / STRATA_ENTRY_CHUNK], memory_order_acquire);
    return (strata_entry *)(void *)(chunk + (size_t)(slot % STRATA_ENTRY_CHUNK) * table->stride);
}

/* The entry that an identity once named, whoever lives there now; NULL for one of another table or out of range. */
static inline strata_entry *strata_table_lookup(const strata_table *table, strata_block_id id)
{
    if (__builtin_expect(id.table != strata_table_id(table) || id.slot >= STRATA_ENTRY_CHUNK * STRATA_ENTRY_CHUNKS, 0))
        return NULL;
    char *chunk = atomic_load_explicit(&table->chunks[id.slot / STRATA_ENTRY_CHUNK], memory_order_acquire);
    if (__builtin_expect(!chunk, 0))
        return NULL;
    return (strata_entry *)(void *)(chunk + (size_t)(id.slot % STRATA_ENTRY_CHUNK) * table->stride);
}

static inline bool strata_word_is(uint64_t word, uint64_t generation, strata_block_state state)
{
    return word >> STRATA_WORD_GENERATION == generation && (word & STRATA_WORD_STATE_MASK) == (uint64_t)state;
}

/* Whether the word is that of a block under this generation that can be used and freed: a live one, or one that its
 * layer holds in quarantine. Both have the lowest bit of the state, and no other state has. */
static inline bool strata_word_lives(uint64_t word, uint64_t generation)
{
    return word >> STRATA_WORD_GENERATION == generation && (word & STRATA_BLOCK_LIVE);
}

/* A free slot with the layers' bytes zeroed, 0 without memory; and back. */
uint32_t strata_table_take_slot(strata_table *table);
void strata_table_give_slot(strata_table *table, uint32_t slot);

/* The facts of a block that is about to be published. Word by word, where a copy of the struct, made of words a moment
 * ago, would stall its reader: a processor cannot forward two stores to one load. */
static inline void strata_block_fill(strata_block *block, const strata_request *request, CUdeviceptr address,
                                     size_t bytes, size_t alignment)
{
    block->address = address;
    block->bytes = bytes;
    block->requested = request->bytes;
    block->alignment = alignment;
    block->tag = request->tag;
    block->stream = request->stream;
}

/* Rebuilds the public facts of a live entry. False if it is not live. */
bool strata_entry_describe(const strata_table *table, uint32_t slot, strata_block *out);

/* Raises which fact of a copy of a block is not as it was allocated: WRONG_DEVICE, FOREIGN_POINTER or SIZE_MISMATCH, as
 * a free does. */
strata_status strata_block_check_facts(const strata_block *allocated, const strata_block *block);

/* For walks over the table: slots from here on were never handed out. */
uint32_t strata_table_slot_limit(strata_table *table);

/* The first live entry from *slot on and before `end`, its lock bit taken, which the caller gives back at once: until
 * then its block cannot be freed. Moves *slot behind it. NULL: there is none. */
strata_entry *strata_table_lock_next(const strata_table *table, uint32_t *slot, uint32_t end);

/* Takes that back. */
void strata_entry_revive(strata_entry *entry);

/* strata_block_quarantine and strata_block_unquarantine. */
strata_status strata_entry_quarantine(const strata_table *table, const strata_block *block, const strata_block *shown,
                                      strata_block_id *held);
void strata_entry_unquarantine(const strata_table *table, strata_block_id held);

/* Frees what hangs on a block that is the caller's alone. */
__attribute__((cold)) void strata_entry_clear(strata_entry *entry);

/* Makes the identity of such a block stale. Returns the generation that ended. */
static inline uint64_t strata_entry_end_life(strata_entry *entry)
{
    if (__builtin_expect(atomic_load_explicit(&entry->more, memory_order_relaxed) || !entry->alloc_known, 0))
        strata_entry_clear(entry);
    uint64_t generation = atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION;
    atomic_store_explicit(&entry->word, generation << STRATA_WORD_GENERATION | STRATA_BLOCK_FREED,
                          memory_order_release);
    return generation;
}

/* Ends a retired block, or a slot whose block was never given out: its identity is stale from now on, its slot free. */
void strata_entry_destroy(strata_table *table, strata_entry *entry, uint32_t slot);

/* Why an identity does not name a live block: raises `stale` (USE_AFTER_FREE or DOUBLE_FREE), FOREIGN_POINTER, ... */
__attribute__((cold)) strata_status strata_block_refuse(const strata_table *table, const strata_block *block,
                                                        strata_status stale);

/* Zeroes the layers' bytes of a free entry, up to `end`. Word by word and atomically: a layer may be reading them for a
 * free that comes too late, and finds out afterwards that it did. */
static inline void strata_entry_zero_layers(strata_entry *entry, const void *end)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(entry + 1);
    const _Atomic uint64_t *behind = end;
    for (; behind - word >= 4; word += 4) { /* no compiler does several at a time by itself */
        atomic_store_explicit(&word[0], 0, memory_order_relaxed);
        atomic_store_explicit(&word[1], 0, memory_order_relaxed);
        atomic_store_explicit(&word[2], 0, memory_order_relaxed);
        atomic_store_explicit(&word[3], 0, memory_order_relaxed);
    }
    for (; word != behind; word++)
        atomic_store_explicit(word, 0, memory_order_relaxed);
}

/* Ends a retired block like strata_entry_destroy, but keeps the slot for the block that is about to be published in it.
 * Of the layers' bytes, those before `owner_bytes` are zeroed; the rest is its caller's. */
static inline void strata_entry_renew(strata_entry *entry, const void *owner_bytes)
{
    strata_entry_end_life(entry);
    strata_entry_zero_layers(entry, owner_bytes);
}

/* Whether the slot can have another block: its generations are not used up. */
static inline bool strata_entry_is_renewable(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION < STRATA_GENERATION_LAST;
}

/* The state of an identity. The one that a quarantined block had before is QUARANTINED, too. */
strata_block_state strata_table_state(const strata_table *table, strata_block_id id);

/* Whether an identity names a block that lives and was made under the generation `made`, which a layer kept for its
 * slot: that one, or the identity under which a layer above holds the block back. */
bool strata_table_names(const strata_table *table, strata_block_id id, uint64_t made);

/* The generation under which a block lives in a slot that is in use; 0: none does. */
uint64_t strata_table_living(const strata_table *table, uint32_t slot);

/* The lock bit of an entry, for changing its points: taken only while `generation` lives. */
bool strata_entry_lock(strata_entry *entry, uint64_t generation);
void strata_entry_unlock(strata_entry *entry);

#endif
