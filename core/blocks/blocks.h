/* The table of blocks: one for each stack, an entry for each block, found by index and generation. An entry's word:
 *
 *     63 ................ 16 |  15  | 14 ........ 4 |   3    | 2 ... 0
 *          generation        | kept |  shared pins  | locked |  state
 *
 * A generation is given to a user once. An entry without generations left is not reused.
 *
 * Quarantine. A layer that holds a freed block back takes it under the next generation, in the state QUARANTINED. To
 * the user it is freed; to the layers below, under an identity known to that layer alone, it is live, except that a
 * search by address does not find it.
 *
 * Pins. A block is pinned between prepare and finish: by its creating thread in `own_pins`, which only that thread
 * writes, without a locked instruction; by other threads in the word. A free checks both. The last unpin leaves 0. A
 * free that races with an unsynchronized prepare may miss the owning thread's pin: a bug of the program, which finish
 * reports, since the generation has changed.
 *
 * Kept. Captures and graphs keep the blocks that they use: only they, or a free through the runtime, free a kept block.
 * How many keep it is counted in runtime/kept_blocks.h. */
#ifndef STRATA_CORE_BLOCKS_BLOCKS_H
#define STRATA_CORE_BLOCKS_BLOCKS_H

#include "core/base/thread.h"
#include "core/streams/timeline.h"

#include <strata/block.h>
#include <strata/resource.h>

#define STRATA_WORD_STATE_MASK UINT64_C(0x7)
#define STRATA_WORD_LOCKED     UINT64_C(0x8)
#define STRATA_WORD_PIN        UINT64_C(0x10)
#define STRATA_WORD_PINS_MASK  UINT64_C(0x7ff0)
#define STRATA_WORD_KEPT       UINT64_C(0x8000)
#define STRATA_WORD_GENERATION 16
#define STRATA_OWN_PINS_MASK   UINT64_C(0xffff)
#define STRATA_GENERATION_LAST ((UINT64_C(1) << 48) - 1)

/* Points beyond the two in the entry. */
typedef struct strata_more_points {
    uint32_t count, capacity;
    strata_point points[];
} strata_more_points;

typedef struct strata_entry {
    _Atomic uint64_t word;
    _Atomic uint64_t own_pins; /* generation and count of the creating thread's pins, or 0; written by that thread */
    /* Facts: written before the word says LIVE, constant while it does. Atomic, because an invalid free may read them
     * while the entry becomes another block's: it reads the word again before it uses them, and a reader of a new fact
     * (acquire) sees that the word has left the old block (release). */
    _Atomic CUdeviceptr address;
    _Atomic uint64_t bytes, requested;
    _Atomic(CUstream) stream;
    union {
        struct {
            _Atomic strata_tag tag;
            _Atomic uint16_t alloc_timeline; /* its number */
            _Atomic uint16_t creator;        /* number of the creating thread; 0: none */
        };
        _Atomic uint64_t origin; /* these three, written as one */
    };
    _Atomic strata_point last_write; /* points change under the word's lock bit and may be read without it */
    _Atomic strata_point last_read;
    _Atomic(strata_more_points *) more;
    union {
        struct {
            union {
                _Atomic uint32_t alloc_incarnation; /* of the allocation timeline; atomic like it */
                _Atomic uint32_t next_free;         /* while FREED: guarded by the table's lock */
            };
            _Atomic uint8_t alignment_log2;
            _Atomic bool alloc_known; /* the allocation stream was known then */
            _Atomic bool touched;     /* a use was recorded; any thread */
            _Atomic uint8_t
                quarantines; /* layers that hold it back, one above another; changes under the word's lock bit */
        };
        _Atomic uint64_t beginning; /* these five, written as one */
    };
} strata_entry;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the small members of an entry are written as words");

static inline uint64_t strata_entry_origin(strata_tag tag, uint16_t alloc_timeline, uint32_t creator)
{
    return tag | (uint64_t)alloc_timeline << 32 | (uint64_t)(uint16_t)creator << 48;
}

static inline uint64_t strata_entry_beginning(uint32_t alloc_incarnation, size_t alignment, bool alloc_known)
{
    return alloc_incarnation | (uint64_t)__builtin_ctzll(alignment) << 32 | (uint64_t)alloc_known << 40;
}

enum {
    STRATA_ENTRY_CHUNK = 2048, /* entries */
    STRATA_ENTRY_CHUNKS = 8192,
};

typedef struct strata_table {
    uint32_t number; /* 1 ... STRATA_TABLE_LIMIT - 1 */
    uint32_t id;     /* the number, and 22 bits of its uses: an identity of an earlier table is foreign */
    uint32_t stride; /* bytes of an entry, layers' bytes included */
    int ordinal;
    strata_device *device;
    _Atomic(char *) chunks[STRATA_ENTRY_CHUNKS]; /* set once, under the lock */
    strata_lock lock;
    uint32_t fresh;      /* first entry never handed out; guarded by the lock */
    uint32_t free_slots; /* chained through next_free, ended by 0; guarded by the lock */
} strata_table;

/* Each entry gets layer_bytes more. Errors: OUT_OF_HOST_MEMORY, BUSY (too many tables). */
strata_status strata_table_create(strata_device *device, uint32_t layer_bytes, strata_table **out);

/* No block is live and no call is in flight. */
void strata_table_destroy(strata_table *table);

/* All that this folder needs to know of a stack. */
typedef struct strata_stack_head {
    strata_table *table;
} strata_stack_head;

/* For a resource in a stack. */
static inline strata_table *strata_resource_table(const strata_resource *resource)
{
    return ((const strata_stack_head *)(const void *)resource->stack)->table;
}

static inline bool strata_block_is_empty(const strata_block *block)
{
    return block->address == 0 && block->id.generation == 0;
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

/* The entry of an identity's slot, perhaps another block's by now. NULL: another table's identity, or out of range. */
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

/* Whether the block can be used and freed: LIVE or QUARANTINED, the states with the lowest bit set. */
static inline bool strata_word_lives(uint64_t word, uint64_t generation)
{
    return word >> STRATA_WORD_GENERATION == generation && (word & STRATA_BLOCK_LIVE);
}

/* Take returns a free slot with zeroed layers' bytes; 0 without host memory. */
uint32_t strata_table_take_slot(strata_table *table);
void strata_table_give_slot(strata_table *table, uint32_t slot);

/* Stores the facts word by word: a copy of a struct just written would stall, since a processor cannot forward two
 * stores to one load.
 */
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

/* Whether a block is live and kept. */
static inline bool strata_block_is_kept(const strata_table *table, const strata_block *block)
{
    const strata_entry *entry = strata_table_lookup(table, block->id);
    const uint64_t word = entry ? atomic_load_explicit(&entry->word, memory_order_acquire) : 0;
    return (word & STRATA_WORD_KEPT) && strata_word_lives(word, block->id.generation);
}

/* Writes the facts of the block in a slot; false if none is live. */
bool strata_entry_describe(const strata_table *table, uint32_t slot, strata_block *out);

/* Raises the first difference, as a free does: WRONG_DEVICE, FOREIGN_POINTER or SIZE_MISMATCH. */
strata_status strata_check_block_facts(const strata_block *allocated, const strata_block *block);

/* The end of a walk over slots: from here on they were never handed out. */
uint32_t strata_table_slot_limit(strata_table *table);

/* Whether a block contains the address, also one that a layer holds back or cuts, such as a chunk. Examines all. */
bool strata_table_holds(strata_table *table, CUdeviceptr address);

/* The first live entry from *slot on and before `end`, with its lock bit, which keeps the block from being freed: the
 * caller soon releases it. Advances *slot. NULL: none. */
strata_entry *strata_table_lock_next(const strata_table *table, uint32_t *slot, uint32_t end);

/* Marks a live block as kept; false if its generation is not live. Until strata_entry_unkeep, only a free that allows
 * for the mark retires it. */
bool strata_entry_keep(strata_entry *entry, uint64_t generation);
void strata_entry_unkeep(strata_entry *entry, uint64_t generation);

/* As strata_entry_retire, for a block that may be kept and that strata_entry_retire_found has not retired. */
strata_status strata_entry_retire_kept_slow(strata_table *table, const strata_block *block, strata_entry **out);

/* Undoes strata_entry_retire: the free failed. */
void strata_entry_revive(strata_entry *entry);

/* Quarantine ends the block's generation for the user: *held is its identity under the next one. `shown` has the facts
 * that the user's block must match. Unquarantine takes that back. */
strata_status strata_entry_quarantine(const strata_table *table, const strata_block *block, const strata_block *shown,
                                      strata_block_id *held);
void strata_entry_unquarantine(const strata_table *table, strata_block_id held);

/* Frees the array of an entry that belongs to the caller alone, and takes its block from its timeline's count. */
__attribute__((cold)) void strata_entry_clear(strata_entry *entry);

/* Makes the identity stale; the entry belongs to the caller alone. Returns the ended generation. */
static inline uint64_t strata_entry_end_life(strata_entry *entry)
{
    if (__builtin_expect(atomic_load_explicit(&entry->more, memory_order_relaxed) || !entry->alloc_known, 0))
        strata_entry_clear(entry);
    uint64_t generation = atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION;
    atomic_store_explicit(&entry->word, generation << STRATA_WORD_GENERATION | STRATA_BLOCK_FREED,
                          memory_order_release);
    return generation;
}

/* Ends a retired block, or a slot whose block was never given out: the identity is stale, the slot free. */
void strata_entry_destroy(strata_table *table, strata_entry *entry, uint32_t slot);

/* An error record with the block's facts, for the caller to raise. */
__attribute__((cold)) strata_error *strata_block_error(strata_status status, const strata_block *block);

/* Raises why an identity names no live block: `stale` (USE_AFTER_FREE or DOUBLE_FREE), FOREIGN_POINTER, ... */
__attribute__((cold)) strata_status strata_block_refuse(const strata_table *table, const strata_block *block,
                                                        strata_status stale);

/* Zeroes a free entry's layer bytes up to `end`. By atomic words: a layer may read them for an invalid free, and
 * notices afterwards. */
static inline void strata_entry_zero_layers(strata_entry *entry, const void *end)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(entry + 1);
    const _Atomic uint64_t *behind = end;
    for (; behind - word >= 4; word += 4) { /* compilers do not unroll this */
        atomic_store_explicit(&word[0], 0, memory_order_relaxed);
        atomic_store_explicit(&word[1], 0, memory_order_relaxed);
        atomic_store_explicit(&word[2], 0, memory_order_relaxed);
        atomic_store_explicit(&word[3], 0, memory_order_relaxed);
    }
    const size_t rest = (size_t)((const char *)behind - (const char *)word); /* bytes */
    if (rest & (2 * sizeof *word)) {
        atomic_store_explicit(&word[0], 0, memory_order_relaxed);
        atomic_store_explicit(&word[1], 0, memory_order_relaxed);
        word += 2;
    }
    if (rest & sizeof *word)
        atomic_store_explicit(word, 0, memory_order_relaxed);
}

/* As strata_entry_destroy, but keeps the slot for the next block and zeroes the layers' bytes before `owner_bytes`; the
 * caller sets the rest. */
static inline void strata_entry_renew(strata_entry *entry, const void *owner_bytes)
{
    strata_entry_end_life(entry);
    strata_entry_zero_layers(entry, owner_bytes);
}

static inline bool strata_entry_is_renewable(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION < STRATA_GENERATION_LAST;
}

/* The state of an identity's block; QUARANTINED also for the identity that it had before its quarantine. */
strata_block_state strata_table_state(const strata_table *table, strata_block_id id);

/* Whether an identity names a live block created under the generation `made`, also while a layer above holds it back.
 */
bool strata_table_names(const strata_table *table, strata_block_id id, uint64_t made);

/* The live block's generation; 0: none. */
uint64_t strata_table_living(const strata_table *table, uint32_t slot);

/* Takes the lock bit; false if `generation` is not live. */
bool strata_entry_lock(strata_entry *entry, uint64_t generation);
void strata_entry_unlock(strata_entry *entry);

/* ---- the fast paths of owners ---- */

/* As strata_entry_publish. `mark`: 0, or STRATA_WORD_KEPT for a block that its creator keeps. */
static inline __attribute__((always_inline)) void
strata_entry_publish_marked(const strata_table *table, strata_entry *entry, uint32_t slot,
                            strata_timeline *alloc_timeline, bool alloc_known, uint64_t mark, strata_block *block)
{
    const strata_thread *thread = strata_thread_current;
    strata_point first = strata_timeline_now(alloc_timeline);
    uint64_t generation = (atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION) + 1;
    atomic_store_explicit(&entry->address, block->address, memory_order_release);
    atomic_store_explicit(&entry->bytes, block->bytes, memory_order_release);
    atomic_store_explicit(&entry->requested, block->requested, memory_order_release);
    atomic_store_explicit(&entry->stream, block->stream, memory_order_relaxed);
    atomic_store_explicit(&entry->origin,
                          strata_entry_origin(block->tag, alloc_timeline->number, thread ? thread->index : 0),
                          memory_order_relaxed);
    const uint32_t incarnation = atomic_load_explicit(&alloc_timeline->incarnation, memory_order_relaxed);
    atomic_store_explicit(&entry->beginning, strata_entry_beginning(incarnation, block->alignment, alloc_known),
                          memory_order_relaxed);
    if (__builtin_expect(!alloc_known, 0))
        strata_timeline_add_block(alloc_timeline);
    atomic_store_explicit(&entry->last_write, first | STRATA_POINT_WRITE, memory_order_relaxed);
    atomic_store_explicit(&entry->last_read, 0, memory_order_relaxed);
    block->device = table->ordinal;
    block->id.table = strata_table_id(table);
    block->id.slot = slot;
    block->id.generation = generation;
    atomic_store_explicit(&entry->word, generation << STRATA_WORD_GENERATION | STRATA_BLOCK_LIVE | mark,
                          memory_order_release);
}

/* Makes the slot's entry a live block. *block has the facts, and gets device and id. The first point is on
 * `alloc_timeline`. */
static inline __attribute__((always_inline)) void strata_entry_publish(strata_table *table, uint32_t slot,
                                                                       strata_timeline *alloc_timeline,
                                                                       bool alloc_known, strata_block *block)
{
    strata_entry_publish_marked(table, strata_table_entry(table, slot), slot, alloc_timeline, alloc_known, 0, block);
}

/* As strata_entry_publish, for an entry that keeps its address and size. The caller has stored the first point; *block
 * gets all facts. `origin` has no tag. */
static inline __attribute__((always_inline)) void
strata_entry_publish_again(const strata_table *table, strata_entry *entry, uint32_t slot, uint64_t origin,
                           uint64_t beginning, size_t alignment, const strata_request *request, strata_block *block)
{
    const size_t requested = request->bytes; /* each fact is loaded and stored at once: few registers */
    atomic_store_explicit(&entry->requested, requested, memory_order_release);
    block->requested = requested;
    const CUstream stream = request->stream;
    atomic_store_explicit(&entry->stream, stream, memory_order_relaxed);
    block->stream = stream;
    const strata_tag tag = request->tag;
    atomic_store_explicit(&entry->origin, origin | tag, memory_order_relaxed);
    block->tag = tag;
    block->address = atomic_load_explicit(&entry->address, memory_order_relaxed);
    block->bytes = atomic_load_explicit(&entry->bytes, memory_order_relaxed);
    atomic_store_explicit(&entry->beginning, beginning, memory_order_relaxed);
    block->alignment = alignment;
    block->device = table->ordinal;
    const uint64_t generation =
        (atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION) + 1;
    block->id.table = strata_table_id(table);
    block->id.slot = slot;
    block->id.generation = generation;
    atomic_store_explicit(&entry->word, generation << STRATA_WORD_GENERATION | STRATA_BLOCK_LIVE, memory_order_release);
}

static inline uint64_t strata_entry_own_pins(const strata_entry *entry, uint64_t generation)
{
    uint64_t pins = atomic_load_explicit(&entry->own_pins, memory_order_acquire);
    return pins >> STRATA_WORD_GENERATION == generation ? pins & STRATA_OWN_PINS_MASK : 0;
}

static inline bool strata_entry_has_facts(const strata_table *table, const strata_entry *entry,
                                          const strata_block *block)
{
    return table->ordinal == block->device &&
           atomic_load_explicit(&entry->address, memory_order_acquire) == block->address &&
           atomic_load_explicit(&entry->bytes, memory_order_acquire) == block->bytes &&
           atomic_load_explicit(&entry->requested, memory_order_acquire) == block->requested;
}

static inline bool strata_entry_try_retire(strata_entry *entry, uint64_t *word)
{
    uint64_t retired = (*word & ~STRATA_WORD_STATE_MASK) | STRATA_BLOCK_RETIRED;
    return atomic_compare_exchange_strong_explicit(&entry->word, word, retired, memory_order_acq_rel,
                                                   memory_order_acquire);
}

strata_status strata_entry_retire_slow(strata_table *table, const strata_block *block, strata_entry **out);

/* Whether the entry is that of a live, unpinned block whose generation is not the last, and whose mark is `mark`: 0 or
 * STRATA_WORD_KEPT. Then strata_entry_try_retire with *word retires it, unless it has changed since. A use that began
 * and ended meanwhile leaves the word as it was: points are read behind that. The word is read before the facts, lest
 * they be the previous block's, and changed after them, which fails if they were the next block's. */
static inline bool strata_entry_may_retire(const strata_table *table, const strata_entry *entry,
                                           const strata_block *block, uint64_t mark, uint64_t *word)
{
    const uint64_t generation = block->id.generation;
    *word = generation << STRATA_WORD_GENERATION | STRATA_BLOCK_LIVE | mark;
    return generation < STRATA_GENERATION_LAST && atomic_load_explicit(&entry->word, memory_order_acquire) == *word &&
           !atomic_load_explicit(&entry->own_pins, memory_order_acquire) && strata_entry_has_facts(table, entry, block);
}

/* Retires such a block. The entry is its slot's. False: take the slow path, which also knows pins of an earlier
 * generation. */
static inline bool strata_entry_retire_found(const strata_table *table, strata_entry *entry, const strata_block *block,
                                             uint64_t mark)
{
    uint64_t word;
    return strata_entry_may_retire(table, entry, block, mark, &word) && strata_entry_try_retire(entry, &word);
}

/* As strata_entry_retire_found, of a block whose entry is looked up. NULL: take the slow path. */
static inline strata_entry *strata_entry_retire_fast(const strata_table *table, const strata_block *block,
                                                     uint64_t mark)
{
    strata_entry *entry = strata_table_lookup(table, block->id);
    const bool retired = entry && strata_entry_retire_found(table, entry, block, mark);
    return __builtin_expect(retired, 1) ? entry : NULL;
}

/* Turns LIVE or QUARANTINED into RETIRED, for exactly one free. Checks identity, facts, device and pins. Afterwards the
 * entry belongs to the caller alone. */
static inline strata_status strata_entry_retire(strata_table *table, const strata_block *block, strata_entry **out)
{
    *out = strata_entry_retire_fast(table, block, 0);
    return __builtin_expect(*out != NULL, 1) ? STRATA_SUCCESS : strata_entry_retire_slow(table, block, out);
}

#endif
