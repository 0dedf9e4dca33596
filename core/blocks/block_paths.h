/* Fast paths of a block's begin and end, compiled into the owners that call them in each allocation and free. The
 * general ways are in core/blocks/blocks.c. */
#ifndef STRATA_CORE_BLOCKS_BLOCK_PATHS_H
#define STRATA_CORE_BLOCKS_BLOCK_PATHS_H

#include "core/blocks/blocks.h"
#include "core/streams/timeline.h"

/* Makes a block live in a slot. *block has the facts, and gets device and id. It was allocated on the stream of
 * `alloc_timeline`, where its first point is. */
static inline __attribute__((always_inline)) void strata_entry_publish(strata_table *table, uint32_t slot,
                                                                       strata_timeline *alloc_timeline,
                                                                       bool alloc_known, strata_block *block)
{
    strata_entry *entry = strata_table_entry(table, slot);
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
    block->device = table->device->ordinal;
    block->id.table = strata_table_id(table);
    block->id.slot = slot;
    block->id.generation = generation;
    atomic_store_explicit(&entry->word, generation << STRATA_WORD_GENERATION | STRATA_BLOCK_LIVE, memory_order_release);
}

/* The same in an entry that keeps its address and size from one block to the next. The caller gives the first point, no
 * read is recorded, and *block gets all facts. `origin` has no tag. */
static inline __attribute__((always_inline)) void
strata_entry_publish_again(const strata_table *table, strata_entry *entry, uint32_t slot, uint64_t origin,
                           uint64_t beginning, size_t alignment, const strata_request *request, strata_block *block)
{
    const uint64_t generation =
        (atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION) + 1;
    const size_t requested = request->bytes;
    const CUstream stream = request->stream;
    const strata_tag tag = request->tag;
    block->address = atomic_load_explicit(&entry->address, memory_order_relaxed);
    block->bytes = atomic_load_explicit(&entry->bytes, memory_order_relaxed);
    block->requested = requested;
    block->alignment = alignment;
    block->device = table->ordinal;
    block->tag = tag;
    block->stream = stream;
    block->id.table = strata_table_id(table);
    block->id.slot = slot;
    block->id.generation = generation;
    atomic_store_explicit(&entry->requested, requested, memory_order_release);
    atomic_store_explicit(&entry->stream, stream, memory_order_relaxed);
    atomic_store_explicit(&entry->origin, origin | tag, memory_order_relaxed);
    atomic_store_explicit(&entry->beginning, beginning, memory_order_relaxed);
    atomic_store_explicit(&entry->word, generation << STRATA_WORD_GENERATION | STRATA_BLOCK_LIVE, memory_order_release);
}

/* The owning thread's pins in this generation of the entry. */
static inline uint64_t strata_entry_own_pins(const strata_entry *entry, uint64_t generation)
{
    uint64_t pins = atomic_load_explicit(&entry->own_pins, memory_order_acquire);
    return pins >> STRATA_WORD_GENERATION == generation ? pins & 0xffff : 0;
}

static inline bool strata_entry_has_facts(const strata_table *table, const strata_entry *entry,
                                          const strata_block *block)
{
    return table->ordinal == block->device &&
           atomic_load_explicit(&entry->address, memory_order_acquire) == block->address &&
           atomic_load_explicit(&entry->bytes, memory_order_acquire) == block->bytes &&
           atomic_load_explicit(&entry->requested, memory_order_acquire) == block->requested;
}

static inline bool strata_entry_turn_to_retired(strata_entry *entry, uint64_t *word)
{
    uint64_t retired = (*word & ~STRATA_WORD_STATE_MASK) | STRATA_BLOCK_RETIRED;
    return atomic_compare_exchange_strong_explicit(&entry->word, word, retired, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* The general way: waits for a lock bit, and finds the error. */
strata_status strata_entry_retire_slow(strata_table *table, const strata_block *block, strata_entry **out);

/* Fast path of strata_entry_retire: a live, unpinned block whose generation is not the last. NULL: take the general
 * way. The word is read before the facts, so that they are not the previous block's, and changed after them, which
 * fails if they were the next block's. */
static inline strata_entry *strata_entry_retire_fast(const strata_table *table, const strata_block *block)
{
    strata_entry *entry = strata_table_lookup(table, block->id);
    const uint64_t generation = block->id.generation;
    uint64_t word = generation << STRATA_WORD_GENERATION | STRATA_BLOCK_LIVE;
    bool fine = entry && generation < STRATA_GENERATION_LAST &&
                atomic_load_explicit(&entry->word, memory_order_acquire) == word &&
                !strata_entry_own_pins(entry, generation) && strata_entry_has_facts(table, entry, block) &&
                strata_entry_turn_to_retired(entry, &word);
    return __builtin_expect(fine, 1) ? entry : NULL;
}

/* Turns LIVE or QUARANTINED into RETIRED, for exactly one free. Checks identity, facts, device and pins, and raises
 * errors. Afterwards the entry belongs to the caller alone. */
static inline strata_status strata_entry_retire(strata_table *table, const strata_block *block, strata_entry **out)
{
    *out = strata_entry_retire_fast(table, block);
    return __builtin_expect(*out != NULL, 1) ? STRATA_SUCCESS : strata_entry_retire_slow(table, block, out);
}

#endif
