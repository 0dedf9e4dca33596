/* Entries live in chunks that stay until the table ends: the index of any identity, however old, can be followed. Free
 * slots are cached for each thread and move in batches. */
#include "core/blocks/blocks.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "core/base/size_text.h"
#include "core/streams/timeline.h"

#include <pthread.h>

enum { SLOT_CACHE_SIZE = 64 };

typedef struct strata_slot_cache {
    strata_table *table;
    uint32_t count;
    uint32_t slots[SLOT_CACHE_SIZE];
} strata_slot_cache;

static strata_lock numbers_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_LAYERS);
static bool number_taken[STRATA_TABLE_LIMIT];     /* guarded by numbers_lock */
static uint32_t incarnations[STRATA_TABLE_LIMIT]; /* guarded by numbers_lock */

strata_status strata_table_create(strata_device *device, uint32_t layer_bytes, strata_table **out)
{
    *out = NULL;
    strata_table *table = strata_host_zalloc(sizeof *table);
    if (!table)
        return strata_fail_host_memory("a table of blocks");
    strata_lock_take(&numbers_lock);
    uint32_t number = 1;
    while (number < STRATA_TABLE_LIMIT && number_taken[number])
        number++;
    if (number < STRATA_TABLE_LIMIT) {
        number_taken[number] = true;
        table->id = ++incarnations[number] << 10 | number;
    }
    strata_lock_release(&numbers_lock);
    if (number == STRATA_TABLE_LIMIT) {
        strata_host_free(table);
        return strata_fail(STRATA_ERROR_BUSY, "too many stacks: a process can have %d at a time",
                           STRATA_TABLE_LIMIT - 1);
    }
    strata_lock_init(&table->lock, STRATA_RANK_TABLE);
    table->number = number;
    table->device = device;
    table->ordinal = device->ordinal;
    table->stride = (uint32_t)((sizeof(strata_entry) + layer_bytes + 15) & ~(size_t)15);
    table->fresh = 1;
    *out = table;
    return STRATA_SUCCESS;
}

static void drop_cache(strata_thread *thread, void *data)
{
    strata_table *table = data;
    strata_host_free(thread->slots[table->number]);
    thread->slots[table->number] = NULL;
}

void strata_table_destroy(strata_table *table)
{
    if (!table)
        return;
    strata_thread_visit_all(drop_cache, table);
    for (uint32_t slot = 1; slot < table->fresh; slot++)
        strata_host_free(atomic_load_explicit(&strata_table_entry(table, slot)->more, memory_order_relaxed));
    for (size_t i = 0; i <= table->fresh / STRATA_ENTRY_CHUNK && i < STRATA_ENTRY_CHUNKS; i++)
        strata_host_free(atomic_load_explicit(&table->chunks[i], memory_order_relaxed));
    strata_lock_take(&numbers_lock);
    number_taken[table->number] = false;
    strata_lock_release(&numbers_lock);
    strata_lock_destroy(&table->lock);
    strata_host_free(table);
}

/* ---- slots ---- */

/* Creates the chunk of a slot if it is missing; false without host memory or beyond the last slot. The lock is held. */
static bool back_slot(strata_table *table, uint32_t slot)
{
    if (slot >= STRATA_ENTRY_CHUNK * STRATA_ENTRY_CHUNKS)
        return false;
    _Atomic(char *) *chunk = &table->chunks[slot / STRATA_ENTRY_CHUNK];
    if (atomic_load_explicit(chunk, memory_order_relaxed))
        return true;
    char *memory = strata_host_zalloc_aligned(64, (size_t)STRATA_ENTRY_CHUNK * table->stride);
    if (!memory)
        return false;
    atomic_store_explicit(chunk, memory, memory_order_release);
    return true;
}

static uint32_t take_slots(strata_table *table, uint32_t *slots, uint32_t count)
{
    uint32_t taken = 0;
    strata_lock_take(&table->lock);
    while (taken < count && table->free_slots) {
        uint32_t slot = table->free_slots;
        table->free_slots = atomic_load_explicit(&strata_table_entry(table, slot)->next_free, memory_order_relaxed);
        slots[taken++] = slot;
    }
    while (taken < count && back_slot(table, table->fresh))
        slots[taken++] = table->fresh++;
    strata_lock_release(&table->lock);
    return taken;
}

static void give_slots(strata_table *table, const uint32_t *slots, uint32_t count)
{
    strata_lock_take(&table->lock);
    for (uint32_t i = 0; i < count; i++) {
        atomic_store_explicit(&strata_table_entry(table, slots[i])->next_free, table->free_slots, memory_order_relaxed);
        table->free_slots = slots[i];
    }
    strata_lock_release(&table->lock);
}

/* Not in a forked child: it needs no slot, and a thread missing there may have held the table's lock. */
static void drop_slots(strata_thread *thread)
{
    bool forked = strata_driver_state_now() == STRATA_DRIVER_FORKED;
    for (size_t i = 0; i < STRATA_TABLE_LIMIT; i++) {
        strata_slot_cache *cache = thread->slots[i];
        if (cache && !forked)
            give_slots(cache->table, cache->slots, cache->count);
        strata_host_free(cache);
    }
}

static strata_thread_exit_hook exit_hook = {.run = drop_slots};
static pthread_once_t exit_hook_once = PTHREAD_ONCE_INIT;

static void add_exit_hook(void)
{
    strata_thread_add_exit_hook(&exit_hook);
}

/* The calling thread's cache, created on first use; NULL without memory. */
static strata_slot_cache *slot_cache(strata_table *table)
{
    strata_thread *thread = strata_thread_self();
    if (!thread)
        return NULL;
    strata_slot_cache *cache = thread->slots[table->number];
    if (cache)
        return cache;
    pthread_once(&exit_hook_once, add_exit_hook);
    cache = strata_host_zalloc(sizeof *cache);
    if (cache)
        cache->table = table;
    thread->slots[table->number] = cache;
    return cache;
}

static uint32_t take_slot(strata_table *table)
{
    strata_slot_cache *cache = slot_cache(table);
    uint32_t slot = 0;
    if (!cache)
        return take_slots(table, &slot, 1) ? slot : 0;
    if (!cache->count)
        cache->count = take_slots(table, cache->slots, SLOT_CACHE_SIZE / 2);
    return cache->count ? cache->slots[--cache->count] : 0;
}

uint32_t strata_table_take_slot(strata_table *table)
{
    uint32_t slot = take_slot(table);
    if (slot) {
        strata_entry *entry = strata_table_entry(table, slot);
        strata_entry_zero_layers(entry, (const char *)entry + table->stride);
    }
    return slot;
}

void strata_table_give_slot(strata_table *table, uint32_t slot)
{
    strata_slot_cache *cache = slot_cache(table);
    if (!cache) {
        give_slots(table, &slot, 1);
        return;
    }
    if (cache->count == SLOT_CACHE_SIZE) {
        cache->count = SLOT_CACHE_SIZE / 2;
        give_slots(table, &cache->slots[cache->count], SLOT_CACHE_SIZE / 2);
    }
    cache->slots[cache->count++] = slot;
}

/* ---- lives ---- */

bool strata_entry_describe(const strata_table *table, uint32_t slot, strata_block *out)
{
    const strata_entry *entry = strata_table_entry(table, slot);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
    if ((word & STRATA_WORD_STATE_MASK) != STRATA_BLOCK_LIVE)
        return false;
    *out = (strata_block){
        .address = entry->address,
        .bytes = (size_t)entry->bytes,
        .requested = (size_t)entry->requested,
        .alignment = (size_t)1 << entry->alignment_log2,
        .device = table->device->ordinal,
        .tag = entry->tag,
        .stream = entry->stream,
        .id = {.table = strata_table_id(table), .slot = slot, .generation = word >> STRATA_WORD_GENERATION},
    };
    return true;
}

uint32_t strata_table_slot_limit(strata_table *table)
{
    strata_lock_take(&table->lock);
    uint32_t end = table->fresh;
    strata_lock_release(&table->lock);
    return end;
}

strata_entry *strata_table_lock_next(const strata_table *table, uint32_t *slot, uint32_t end)
{
    while (*slot < end) {
        strata_entry *entry = strata_table_entry(table, (*slot)++);
        uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
        if ((word & STRATA_WORD_STATE_MASK) == STRATA_BLOCK_LIVE &&
            strata_entry_lock(entry, word >> STRATA_WORD_GENERATION))
            return entry;
    }
    return NULL;
}

bool strata_table_holds(strata_table *table, CUdeviceptr address)
{
    const uint32_t end = strata_table_slot_limit(table);
    for (uint32_t slot = 1; slot < end; slot++) {
        const strata_entry *entry = strata_table_entry(table, slot);
        if ((atomic_load_explicit(&entry->word, memory_order_acquire) & STRATA_BLOCK_LIVE) &&
            address - entry->address < entry->bytes)
            return true;
    }
    return false;
}

strata_error *strata_block_error(strata_status status, const strata_block *block)
{
    strata_error *error = strata_error_begin(status);
    error->requested = block->requested;
    error->tag = block->tag;
    error->generation = block->id.generation;
    return error;
}

static __attribute__((cold)) strata_status refuse_pinned(const strata_block *block)
{
    strata_error *error = strata_block_error(STRATA_ERROR_BLOCK_IN_USE, block);
    return strata_error_raise(error,
                              "block 0x%llx (tag \"%s\", generation %llu) is in use: a prepared use is not finished; "
                              "finish or cancel it before the free",
                              (unsigned long long)block->address, strata_tag_name(block->tag),
                              (unsigned long long)block->id.generation);
}

static __attribute__((cold)) strata_status refuse_kept(const strata_block *block)
{
    strata_error *error = strata_block_error(STRATA_ERROR_BLOCK_IN_USE, block);
    return strata_error_raise(error,
                              "block 0x%llx (tag \"%s\", generation %llu) is used by a graph or a capture; free it "
                              "through its runtime, or after them",
                              (unsigned long long)block->address, strata_tag_name(block->tag),
                              (unsigned long long)block->id.generation);
}

/* The status for the first fact in which the blocks differ. */
static strata_status wrong_fact(const strata_block *allocated, const strata_block *block)
{
    if (block->device != allocated->device)
        return STRATA_ERROR_WRONG_DEVICE;
    if (block->address != allocated->address)
        return STRATA_ERROR_FOREIGN_POINTER;
    if (block->bytes != allocated->bytes || block->requested != allocated->requested)
        return STRATA_ERROR_SIZE_MISMATCH;
    return STRATA_SUCCESS;
}

/* An entry's facts, for a free; the entry may be becoming another block's. */
static strata_block facts_of(const strata_table *table, const strata_entry *entry)
{
    return (strata_block){
        .address = atomic_load_explicit(&entry->address, memory_order_acquire),
        .bytes = (size_t)atomic_load_explicit(&entry->bytes, memory_order_acquire),
        .requested = (size_t)atomic_load_explicit(&entry->requested, memory_order_acquire),
        .device = table->device->ordinal,
        .tag = atomic_load_explicit(&entry->tag, memory_order_relaxed),
    };
}

/* Sizes are exact: they may differ by a byte. */
static __attribute__((cold)) strata_status refuse_fact(const strata_block *allocated, const strata_block *block,
                                                       strata_status status)
{
    const unsigned long long address = allocated->address, generation = block->id.generation;
    const char *tag = strata_tag_name(allocated->tag);
    strata_error *error = strata_block_error(status, block);
    error->tag = allocated->tag;
    if (status == STRATA_ERROR_WRONG_DEVICE)
        return strata_error_raise(
            error,
            "device mismatch: passed device %d, allocated on device %d: block 0x%llx (tag \"%s\", generation %llu)",
            block->device, allocated->device, address, tag, generation);
    if (status == STRATA_ERROR_FOREIGN_POINTER)
        return strata_error_raise(
            error, "block address mismatch: passed 0x%llx, allocated 0x%llx (tag \"%s\", generation %llu)",
            (unsigned long long)block->address, address, tag, generation);
    if (block->bytes != allocated->bytes)
        return strata_error_raise(error,
                                  "block size mismatch: passed %zu bytes, allocated %zu (requested %zu): block 0x%llx "
                                  "(tag \"%s\", generation %llu)",
                                  block->bytes, allocated->bytes, allocated->requested, address, tag, generation);
    return strata_error_raise(error,
                              "block size mismatch: passed %zu requested bytes, allocated with %zu: block 0x%llx "
                              "(tag \"%s\", generation %llu)",
                              block->requested, allocated->requested, address, tag, generation);
}

strata_status strata_check_block_facts(const strata_block *allocated, const strata_block *block)
{
    const strata_status status = wrong_fact(allocated, block);
    return status == STRATA_SUCCESS ? status : refuse_fact(allocated, block, status);
}

static strata_status retire(strata_table *table, const strata_block *block, bool may_be_kept, strata_entry **out)
{
    *out = NULL;
    strata_entry *entry = strata_table_lookup(table, block->id);
    if (!entry)
        return strata_block_refuse(table, block, STRATA_ERROR_DOUBLE_FREE);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
    for (unsigned spins = 0;;) {
        if (!strata_word_lives(word, block->id.generation))
            return strata_block_refuse(table, block, STRATA_ERROR_DOUBLE_FREE);
        if (word & STRATA_WORD_LOCKED) {
            strata_backoff(&spins);
            word = atomic_load_explicit(&entry->word, memory_order_acquire);
            continue;
        }
        if ((word & STRATA_WORD_PINS_MASK) || strata_entry_own_pins(entry, block->id.generation))
            return refuse_pinned(block);
        if ((word & STRATA_WORD_KEPT) && !may_be_kept)
            return refuse_kept(block);
        const strata_block allocated = facts_of(table, entry);
        const strata_status wrong = wrong_fact(&allocated, block);
        if (wrong != STRATA_SUCCESS) {
            uint64_t now = atomic_load_explicit(&entry->word, memory_order_relaxed);
            if (strata_word_lives(now, block->id.generation))
                return refuse_fact(&allocated, block, wrong);
            word = now;
            continue;
        }
        if (strata_entry_try_retire(entry, &word)) {
            *out = entry;
            return STRATA_SUCCESS;
        }
    }
}

strata_status strata_entry_retire_slow(strata_table *table, const strata_block *block, strata_entry **out)
{
    return retire(table, block, false, out);
}

strata_status strata_entry_retire_kept_slow(strata_table *table, const strata_block *block, strata_entry **out)
{
    return retire(table, block, true, out);
}

bool strata_entry_keep(strata_entry *entry, uint64_t generation)
{
    if (!strata_entry_lock(entry, generation))
        return false;
    atomic_fetch_or_explicit(&entry->word, STRATA_WORD_KEPT, memory_order_relaxed);
    strata_entry_unlock(entry);
    return true;
}

void strata_entry_unkeep(strata_entry *entry, uint64_t generation)
{
    if (!strata_entry_lock(entry, generation))
        return;
    atomic_fetch_and_explicit(&entry->word, ~STRATA_WORD_KEPT, memory_order_relaxed);
    strata_entry_unlock(entry);
}

static uint64_t living_state(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->quarantines, memory_order_relaxed) ? STRATA_BLOCK_QUARANTINED
                                                                           : STRATA_BLOCK_LIVE;
}

void strata_entry_revive(strata_entry *entry)
{
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    atomic_store_explicit(&entry->word, (word & ~STRATA_WORD_STATE_MASK) | living_state(entry), memory_order_release);
}

void strata_entry_clear(strata_entry *entry)
{
    strata_host_free(atomic_load_explicit(&entry->more, memory_order_relaxed));
    atomic_store_explicit(&entry->more, NULL, memory_order_relaxed);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    bool was_given_out = (word & STRATA_WORD_STATE_MASK) != STRATA_BLOCK_FREED;
    if (was_given_out && !entry->alloc_known)
        strata_timeline_remove_block(entry->alloc_timeline);
}

void strata_entry_destroy(strata_table *table, strata_entry *entry, uint32_t slot)
{
    if (strata_entry_end_life(entry) < STRATA_GENERATION_LAST)
        strata_table_give_slot(table, slot);
}

strata_status strata_block_refuse(const strata_table *table, const strata_block *block, strata_status stale)
{
    const strata_entry *entry = strata_table_lookup(table, block->id);
    uint64_t now = entry ? atomic_load_explicit(&entry->word, memory_order_acquire) >> STRATA_WORD_GENERATION : 0;
    bool ours = entry && block->id.generation && block->id.generation <= now;
    strata_error *error = strata_block_error(ours ? stale : STRATA_ERROR_FOREIGN_POINTER, block);
    const strata_size_words size = strata_size_text(block->requested);
    const unsigned long long address = block->address, generation = block->id.generation;
    const char *tag = strata_tag_name(block->tag);
    if (!ours)
        return strata_error_raise(error,
                                  "block 0x%llx, %s (tag \"%s\", generation %llu) does not belong to this stack: it "
                                  "is from another runtime, or its identity is invalid",
                                  address, size.text, tag, generation);
    return strata_error_raise(error, "%s: block 0x%llx, %s (tag \"%s\", generation %llu) was already freed",
                              stale == STRATA_ERROR_DOUBLE_FREE ? "double free" : "use after free", address, size.text,
                              tag, generation);
}

strata_block_state strata_table_state(const strata_table *table, strata_block_id id)
{
    const strata_entry *entry = strata_table_lookup(table, id);
    uint64_t word = entry ? atomic_load_explicit(&entry->word, memory_order_acquire) : 0;
    uint64_t generation = word >> STRATA_WORD_GENERATION;
    strata_block_state state = (strata_block_state)(word & STRATA_WORD_STATE_MASK);
    if (generation == id.generation)
        return state;
    bool held_back = state == STRATA_BLOCK_QUARANTINED && id.generation && id.generation < generation &&
                     generation - id.generation <= atomic_load_explicit(&entry->quarantines, memory_order_relaxed);
    return held_back ? STRATA_BLOCK_QUARANTINED : STRATA_BLOCK_FREED;
}

bool strata_table_names(const strata_table *table, strata_block_id id, uint64_t made)
{
    const strata_entry *entry = strata_table_lookup(table, id);
    if (!entry || made > id.generation ||
        !strata_word_lives(atomic_load_explicit(&entry->word, memory_order_acquire), id.generation))
        return false;
    return id.generation - made <= atomic_load_explicit(&entry->quarantines, memory_order_relaxed);
}

uint64_t strata_table_living(const strata_table *table, uint32_t slot)
{
    uint64_t word = atomic_load_explicit(&strata_table_entry(table, slot)->word, memory_order_acquire);
    return word & STRATA_BLOCK_LIVE ? word >> STRATA_WORD_GENERATION : 0;
}

bool strata_entry_lock(strata_entry *entry, uint64_t generation)
{
    strata_lock_order_enter(STRATA_RANK_LEAF);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    for (unsigned spins = 0; strata_word_lives(word, generation);) {
        if (word & STRATA_WORD_LOCKED) {
            strata_backoff(&spins);
            word = atomic_load_explicit(&entry->word, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(&entry->word, &word, word | STRATA_WORD_LOCKED,
                                                         memory_order_acquire, memory_order_relaxed)) {
            return true;
        }
    }
    strata_lock_order_leave(STRATA_RANK_LEAF);
    return false;
}

void strata_entry_unlock(strata_entry *entry)
{
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    atomic_store_explicit(&entry->word, word & ~STRATA_WORD_LOCKED, memory_order_release);
    strata_lock_order_leave(STRATA_RANK_LEAF);
}

/* ---- quarantine ---- */

static strata_status refuse_quarantine(const strata_block *block)
{
    return strata_fail(STRATA_ERROR_UNSUPPORTED,
                       "block 0x%llx (generation %llu) cannot be quarantined: its table entry has no generations left",
                       (unsigned long long)block->address, (unsigned long long)block->id.generation);
}

strata_status strata_entry_quarantine(const strata_table *table, const strata_block *block, const strata_block *shown,
                                      strata_block_id *held)
{
    *held = (strata_block_id){0};
    strata_entry *entry = strata_table_lookup(table, block->id);
    uint64_t generation = block->id.generation;
    if (!entry || !strata_entry_lock(entry, generation))
        return strata_block_refuse(table, block, STRATA_ERROR_DOUBLE_FREE);
    const strata_status wrong = wrong_fact(shown, block);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    bool pinned = (word & STRATA_WORD_PINS_MASK) || strata_entry_own_pins(entry, generation);
    bool kept = (word & STRATA_WORD_KEPT) != 0;
    uint8_t quarantines = atomic_load_explicit(&entry->quarantines, memory_order_relaxed);
    bool last = generation >= STRATA_GENERATION_LAST || quarantines == UINT8_MAX;
    if (pinned || kept || wrong != STRATA_SUCCESS || last) {
        strata_entry_unlock(entry);
        return pinned                    ? refuse_pinned(block)
               : kept                    ? refuse_kept(block)
               : wrong != STRATA_SUCCESS ? refuse_fact(shown, block, wrong)
                                         : refuse_quarantine(block);
    }
    atomic_store_explicit(&entry->quarantines, (uint8_t)(quarantines + 1), memory_order_relaxed);
    uint64_t quarantined = (generation + 1) << STRATA_WORD_GENERATION | STRATA_BLOCK_QUARANTINED;
    atomic_store_explicit(&entry->word, quarantined, memory_order_release);
    strata_lock_order_leave(STRATA_RANK_LEAF); /* the new word has no lock bit */
    *held = block->id;
    held->generation++;
    return STRATA_SUCCESS;
}

void strata_entry_unquarantine(const strata_table *table, strata_block_id held)
{
    strata_entry *entry = strata_table_lookup(table, held);
    if (!entry || !strata_entry_lock(entry, held.generation))
        return;
    atomic_fetch_sub_explicit(&entry->quarantines, 1, memory_order_relaxed);
    uint64_t living = (held.generation - 1) << STRATA_WORD_GENERATION | living_state(entry);
    atomic_store_explicit(&entry->word, living, memory_order_release);
    strata_lock_order_leave(STRATA_RANK_LEAF);
}
