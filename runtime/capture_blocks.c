/* Identities of the memory that captures take. */
#include "runtime/capture_blocks.h"

#include "core/base/host_memory.h"
#include "core/blocks/uses.h"

/* ---- the list of a pool ---- */

/* Counts a change of the pool's live blocks. It is written under the lock alone, so without a locked instruction. */
static void count_change(strata_capture_pool *pool)
{
    const uint64_t changes = atomic_load_explicit(&pool->changes, memory_order_relaxed);
    atomic_store_explicit(&pool->changes, changes + 1, memory_order_release);
}

static void link_block(strata_capture_pool *pool, strata_pool_block *one)
{
    one->previous = NULL;
    one->next = pool->blocks;
    if (one->next)
        one->next->previous = one;
    pool->blocks = one;
    pool->live_blocks++;
    pool->holders++;
    count_change(pool);
}

static inline void unlink_block(strata_pool_block *one)
{
    strata_capture_pool *pool = one->pool;
    if (one->next)
        one->next->previous = one->previous;
    if (one->previous)
        one->previous->next = one->next;
    else
        pool->blocks = one->next;
    pool->live_blocks--;
    pool->holders--;
    count_change(pool);
}

/* Makes a block that is not live a spare one. It keeps the room of its marks, its slot, and its place in the map. */
static void make_spare(strata_pool_block *one)
{
    strata_capture_clear_marks(&one->use);
    one->range = NULL;
    one->next = one->pool->spare_blocks;
    one->pool->spare_blocks = one;
}

/* ---- the map ---- */

enum { BUCKETS = 64 }; /* of a new map */

/* Slots are dense, so they need no hash. */
static void add_to_map(strata_pool_block_map *map, strata_pool_block *one)
{
    strata_pool_block **bucket = &map->buckets[one->slot & map->mask];
    one->same_bucket = *bucket;
    *bucket = one;
}

/* Doubles the buckets; without host memory they get fuller instead. */
static void grow_map(strata_pool_block_map *map)
{
    strata_pool_block_map larger = {.mask = 2 * map->mask + 1, .count = map->count};
    larger.buckets = strata_host_zalloc(((size_t)larger.mask + 1) * sizeof(strata_pool_block *));
    if (!larger.buckets)
        return;
    for (size_t i = 0; i <= map->mask; i++)
        for (strata_pool_block *one = map->buckets[i], *next; one; one = next) {
            next = one->same_bucket;
            add_to_map(&larger, one);
        }
    strata_host_free(map->buckets);
    *map = larger;
}

static void enter(strata_pool_block_map *map, strata_pool_block *one)
{
    if (++map->count > map->mask)
        grow_map(map);
    add_to_map(map, one);
}

static void leave(strata_pool_block_map *map, strata_pool_block *one)
{
    strata_pool_block **link = &map->buckets[one->slot & map->mask];
    while (*link != one)
        link = &(*link)->same_bucket;
    *link = one->same_bucket;
    map->count--;
}

bool strata_pool_blocks_open(strata_runtime *runtime)
{
    strata_captures *captures = &runtime->captures;
    strata_pool_block **buckets = strata_host_zalloc(BUCKETS * sizeof(strata_pool_block *));
    if (!buckets)
        return false;
    strata_captures_lock(captures);
    const bool was_open = captures->pool_blocks.buckets != NULL;
    if (!was_open)
        captures->pool_blocks = (strata_pool_block_map){.buckets = buckets, .mask = BUCKETS - 1};
    strata_captures_unlock(captures);
    if (was_open)
        strata_host_free(buckets);
    return true;
}

void strata_pool_blocks_close(strata_runtime *runtime)
{
    strata_host_free(runtime->captures.pool_blocks.buckets);
    runtime->captures.pool_blocks = (strata_pool_block_map){0};
}

/* ---- spare blocks ---- */

/* Gives a block a slot of the table, and enters it in the map. False without slots. */
static bool give_slot(strata_pool_block *one, strata_runtime *runtime)
{
    one->slot = strata_table_take_slot(runtime->table);
    if (!one->slot)
        return false;
    one->entry = strata_table_entry(runtime->table, one->slot);
    enter(&runtime->captures.pool_blocks, one);
    return true;
}

/* Takes a block's slot back. A slot whose generations are used up is not used again. */
static void take_slot_back(strata_pool_block *one, strata_runtime *runtime)
{
    if (!one->slot)
        return;
    leave(&runtime->captures.pool_blocks, one);
    if (strata_entry_is_renewable(one->entry))
        strata_table_give_slot(runtime->table, one->slot);
    one->slot = 0;
}

/* Gives `one` another slot, or with NULL creates a spare block with a slot. NULL without host memory. */
static __attribute__((noinline)) strata_pool_block *renew_spare(strata_capture_pool *pool, strata_pool_block *one)
{
    if (!one && !(one = strata_host_zalloc(sizeof *one)))
        return NULL;
    one->pool = pool;
    take_slot_back(one, pool->runtime);
    if (give_slot(one, pool->runtime))
        return one;
    make_spare(one);
    return NULL;
}

/* Takes a spare block, with a slot whose layers' bytes are zeroed. NULL without host memory. */
static strata_pool_block *take_spare(strata_capture_pool *pool)
{
    strata_pool_block *one = pool->spare_blocks;
    if (one)
        pool->spare_blocks = one->next;
    if (!one || !one->slot || !strata_entry_is_renewable(one->entry))
        return renew_spare(pool, one);
    strata_entry_zero_layers(one->entry, (const char *)one->entry + pool->runtime->table->stride);
    return one;
}

/* ---- calls ---- */

strata_pool_block *strata_pool_block_publish(strata_capture_pool *pool, strata_capture_range *range,
                                             const strata_request *request, strata_block *block)
{
    const strata_table *table = pool->runtime->table;
    const strata_capture_segment *segment = range->segment;
    strata_pool_block *one = take_spare(pool);
    strata_block made; /* in registers: to read a block that was just written would stall */
    if (!one)
        return NULL;
    const size_t alignment = request->alignment > STRATA_CAPTURE_GRAIN ? request->alignment : STRATA_CAPTURE_GRAIN;
    strata_block_fill(&made, request, range->address, range->bytes, alignment);
    strata_entry *entry = one->entry;
    strata_entry_publish_marked(table, entry, one->slot, pool->timeline, true, STRATA_WORD_KEPT, &made);
    *block = made;
    one->block = made;
    one->range = range;
    one->capture = 0;
    link_block(pool, one);
    if (pool->in_graphs)
        atomic_thread_fence(memory_order_seq_cst); /* see note_late_blocks in runtime/graphs.c */
    if (strata_uses_inherit(segment->entry, segment->block.id.generation, entry))
        return one;
    unlink_block(one);
    strata_entry_end_life(entry);
    make_spare(one);
    return NULL;
}

strata_pool_block *strata_pool_block_at(const strata_runtime *runtime, CUdeviceptr address)
{
    for (const strata_capture_pool *pool = runtime->captures.pools; pool; pool = pool->next)
        for (strata_pool_block *one = pool->blocks; one; one = one->next)
            if (address - one->block.address < one->block.bytes)
                return one;
    return NULL;
}

/* Ends the block's identity; its range is still live. */
static inline __attribute__((always_inline)) strata_status end_block(strata_pool_block *one, const strata_block *block)
{
    strata_table *table = one->pool->runtime->table;
    strata_entry *entry = one->entry;
    strata_status status = STRATA_SUCCESS;
    if (__builtin_expect(!strata_entry_retire_found(table, entry, block, STRATA_WORD_KEPT), 0))
        status = strata_entry_retire_kept_slow(table, block, &entry);
    if (status == STRATA_SUCCESS)
        strata_entry_end_life(entry);
    return status;
}

static void forget_block(strata_pool_block *one)
{
    unlink_block(one);
    make_spare(one);
}

strata_status strata_pool_block_free(strata_pool_block *one, const strata_block *block, bool *last)
{
    strata_capture_pool *pool = one->pool;
    *last = false;
    const strata_status status = end_block(one, block);
    if (status != STRATA_SUCCESS)
        return status;
    strata_capture_ranges_give(&pool->ranges, one->range);
    forget_block(one);
    *last = pool->holders == 0;
    return STRATA_SUCCESS;
}

strata_status strata_pool_block_free_within(strata_pool_block *one, const strata_block *block,
                                            strata_capture_place *place)
{
    const strata_status status = end_block(one, block);
    if (status != STRATA_SUCCESS)
        return status;
    strata_capture_ranges_give_within(&one->pool->ranges, one->range, one->capture, place);
    forget_block(one);
    return STRATA_SUCCESS;
}

void strata_pool_block_take_back(strata_pool_block *one, const strata_block *block, cuuint64_t capture)
{
    if (end_block(one, block) != STRATA_SUCCESS) /* no other thread knows it */
        return;
    strata_capture_ranges_give_barred(&one->pool->ranges, one->range, capture);
    forget_block(one);
}

void strata_pool_blocks_leave_capture(strata_capture_pool *pool, cuuint64_t capture)
{
    for (strata_pool_block *one = pool->blocks; one; one = one->next)
        if (one->capture == capture) {
            one->capture = 0;
            strata_capture_clear_marks(&one->use);
        }
}

void strata_pool_blocks_destroy(strata_capture_pool *pool)
{
    for (strata_pool_block *one = pool->spare_blocks, *next; one; one = next) {
        next = one->next;
        strata_captures_lock(&pool->runtime->captures);
        take_slot_back(one, pool->runtime);
        strata_captures_unlock(&pool->runtime->captures);
        strata_capture_free_marks(&one->use);
        strata_host_free(one);
    }
    pool->spare_blocks = NULL;
}
