/* Identities of the memory that captures take. */
#include "core/base/host_memory.h"

#define uthash_malloc(bytes)                 strata_host_zalloc(bytes)
#define uthash_free(memory, bytes)           strata_host_free(memory)
#define HASH_NONFATAL_OOM                    1
#define HASH_FUNCTION(key, bytes, hash_code) ((hash_code) = *(const uint32_t *)(key)) /* slots are dense */

#include "runtime/capture_blocks.h"

#include "core/blocks/uses.h"

/* ---- the list of a pool ---- */

/* Under the lock alone, so without a locked instruction. */
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

static void unlink_block(strata_pool_block *one)
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

/* Keeps the room of its marks, its slot, and its place in the map. */
static void make_spare(strata_pool_block *one)
{
    strata_capture_clear_marks(&one->use);
    one->range = NULL;
    one->next = one->pool->spare_blocks;
    one->pool->spare_blocks = one;
}

/* ---- the map ---- */

/* The map frees its table with its last block, and makes it with the next: one block stays, of no slot. */
bool strata_pool_blocks_open(strata_runtime *runtime)
{
    strata_captures *captures = &runtime->captures;
    strata_pool_block *none = strata_host_zalloc(sizeof *none);
    if (!none)
        return false;
    strata_captures_lock(captures);
    const bool was_open = captures->pool_blocks != NULL;
    if (!was_open)
        HASH_ADD(hh, captures->pool_blocks, slot, sizeof none->slot, none);
    const bool opened = was_open || none->hh.tbl;
    strata_captures_unlock(captures);
    if (was_open || !opened)
        strata_host_free(none);
    return opened;
}

void strata_pool_blocks_close(strata_runtime *runtime)
{
    strata_pool_block *none = runtime->captures.pool_blocks;
    if (!none)
        return;
    HASH_DEL(runtime->captures.pool_blocks, none);
    strata_host_free(none);
}

/* ---- spare blocks ---- */

/* A slot of the table, and a place in the map. False without host memory, or slots. */
static bool give_slot(strata_pool_block *one, strata_runtime *runtime)
{
    one->slot = strata_table_take_slot(runtime->table);
    if (!one->slot)
        return false;
    HASH_ADD(hh, runtime->captures.pool_blocks, slot, sizeof one->slot, one);
    if (one->hh.tbl)
        return true;
    strata_table_give_slot(runtime->table, one->slot);
    one->slot = 0;
    return false;
}

/* Its generations may be used up: then the slot is not used again. */
static void take_slot_back(strata_pool_block *one, strata_runtime *runtime)
{
    if (!one->slot)
        return;
    HASH_DEL(runtime->captures.pool_blocks, one);
    if (strata_entry_is_renewable(strata_table_entry(runtime->table, one->slot)))
        strata_table_give_slot(runtime->table, one->slot);
    one->slot = 0;
}

/* One with a slot, of which no layer knows anything. NULL without host memory. */
static strata_pool_block *take_spare(strata_capture_pool *pool)
{
    strata_runtime *runtime = pool->runtime;
    strata_pool_block *one = pool->spare_blocks;
    if (one) {
        pool->spare_blocks = one->next;
    } else if (!(one = strata_host_zalloc(sizeof *one))) {
        return NULL;
    }
    one->pool = pool;
    strata_entry *entry = one->slot ? strata_table_entry(runtime->table, one->slot) : NULL;
    if (entry && strata_entry_is_renewable(entry)) {
        strata_entry_zero_layers(entry, (const char *)entry + runtime->table->stride);
        return one;
    }
    take_slot_back(one, runtime);
    if (give_slot(one, runtime))
        return one;
    make_spare(one);
    return NULL;
}

/* ---- calls ---- */

strata_pool_block *strata_pool_block_publish(strata_capture_pool *pool, strata_capture_range *range,
                                             const strata_request *request)
{
    strata_table *table = pool->runtime->table;
    strata_pool_block *one = take_spare(pool);
    if (!one)
        return NULL;
    const size_t alignment = request->alignment > STRATA_CAPTURE_GRAIN ? request->alignment : STRATA_CAPTURE_GRAIN;
    strata_block_fill(&one->block, request, range->address, range->bytes, alignment);
    strata_entry *entry = strata_table_entry(table, one->slot);
    strata_entry_publish_marked(table, one->slot, pool->timeline, true, STRATA_WORD_KEPT, &one->block);
    one->range = range;
    one->capture = 0;
    link_block(pool, one);
    if (pool->in_graphs)
        atomic_thread_fence(memory_order_seq_cst); /* see note_late_blocks in runtime/graphs.c */
    if (strata_uses_inherit(table, range->segment->block.id, entry))
        return one;
    unlink_block(one);
    strata_entry_end_life(entry);
    make_spare(one);
    return NULL;
}

strata_pool_block *strata_pool_block_find(const strata_runtime *runtime, strata_block_id id)
{
    strata_pool_block *one;
    HASH_FIND(hh, runtime->captures.pool_blocks, &id.slot, sizeof id.slot, one);
    return one && one->range && one->block.id.generation == id.generation && one->block.id.table == id.table ? one
                                                                                                             : NULL;
}

strata_pool_block *strata_pool_block_at(const strata_runtime *runtime, CUdeviceptr address)
{
    strata_pool_block *one = runtime->captures.pool_blocks;
    while (one && (!one->range || address - one->block.address >= one->block.bytes))
        one = one->hh.next;
    return one;
}

/* The identity ends. The range is still live. */
static strata_status end_block(strata_pool_block *one, const strata_block *block)
{
    strata_table *table = one->pool->runtime->table;
    strata_entry *entry;
    const strata_status status = strata_entry_retire_kept(table, block, &entry);
    if (status != STRATA_SUCCESS)
        return status;
    strata_entry_end_life(entry);
    return STRATA_SUCCESS;
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

strata_status strata_pool_block_free_within(strata_pool_block *one, const strata_block *block, strata_nodes *after,
                                            strata_capture_place *place)
{
    const strata_status status = end_block(one, block);
    if (status != STRATA_SUCCESS)
        return status;
    strata_capture_ranges_give_within(&one->pool->ranges, one->range, one->capture, after, place);
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
