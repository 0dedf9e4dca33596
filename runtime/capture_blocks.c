/* Identities of the memory that captures take. */
#include "core/base/host_memory.h"

#define uthash_malloc(bytes)                 strata_host_zalloc(bytes)
#define uthash_free(memory, bytes)           strata_host_free(memory)
#define HASH_NONFATAL_OOM                    1
#define HASH_FUNCTION(key, bytes, hash_code) ((hash_code) = *(const uint32_t *)(key)) /* slots are dense */

#include "runtime/capture_blocks.h"

#include "core/blocks/uses.h"

/* ---- the list of a pool ---- */

static void link_block(strata_capture_pool *pool, strata_pool_block *one)
{
    one->previous = NULL;
    one->next = pool->blocks;
    if (one->next)
        one->next->previous = one;
    pool->blocks = one;
    pool->live_blocks++;
    pool->holders++;
    atomic_fetch_add_explicit(&pool->changes, 1, memory_order_release);
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
    atomic_fetch_add_explicit(&pool->changes, 1, memory_order_release);
}

/* Keeps the room of its marks. */
static void make_spare(strata_pool_block *one)
{
    strata_capture_clear_marks(&one->use);
    one->next = one->pool->spare_blocks;
    one->pool->spare_blocks = one;
}

static strata_pool_block *take_spare(strata_capture_pool *pool)
{
    strata_pool_block *one = pool->spare_blocks;
    if (!one)
        return strata_host_zalloc(sizeof *one);
    pool->spare_blocks = one->next;
    return one;
}

/* ---- the map ---- */

/* The map frees its table with its last block, and makes it with the next: one block stays, of no slot. */
bool strata_pool_blocks_open(strata_runtime *runtime)
{
    strata_captures *captures = &runtime->captures;
    strata_pool_block *none = strata_host_zalloc(sizeof *none);
    if (!none)
        return false;
    strata_lock_take(&captures->lock);
    const bool was_open = captures->pool_blocks != NULL;
    if (!was_open)
        HASH_ADD(hh, captures->pool_blocks, slot, sizeof none->slot, none);
    const bool opened = was_open || none->hh.tbl;
    strata_lock_release(&captures->lock);
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

/* ---- calls ---- */

strata_pool_block *strata_pool_block_publish(strata_capture_pool *pool, strata_capture_range *range,
                                             const strata_request *request)
{
    strata_table *table = pool->runtime->table;
    strata_pool_block *one = take_spare(pool);
    if (!one)
        return NULL;
    one->pool = pool;
    one->slot = strata_table_take_slot(table);
    if (!one->slot) {
        make_spare(one);
        return NULL;
    }
    const size_t alignment = request->alignment > STRATA_CAPTURE_GRAIN ? request->alignment : STRATA_CAPTURE_GRAIN;
    strata_block_fill(&one->block, request, range->address, range->bytes, alignment);
    strata_entry_publish_marked(table, one->slot, pool->timeline, true, STRATA_WORD_KEPT, &one->block);
    one->range = range;
    one->capture = 0;
    strata_pool_block **all = &pool->runtime->captures.pool_blocks;
    HASH_ADD(hh, *all, slot, sizeof one->slot, one);
    if (one->hh.tbl) {
        link_block(pool, one);
        atomic_thread_fence(memory_order_seq_cst); /* see note_late_blocks in runtime/graphs.c */
        if (strata_uses_inherit(table, &range->segment->block, &one->block))
            return one;
        unlink_block(one);
        HASH_DEL(*all, one);
    }
    strata_entry_destroy(table, strata_table_entry(table, one->slot), one->slot);
    make_spare(one);
    return NULL;
}

strata_pool_block *strata_pool_block_find(const strata_runtime *runtime, strata_block_id id)
{
    strata_pool_block *one;
    HASH_FIND(hh, runtime->captures.pool_blocks, &id.slot, sizeof id.slot, one);
    return one && one->pool && one->block.id.generation == id.generation && one->block.id.table == id.table ? one
                                                                                                            : NULL;
}

strata_pool_block *strata_pool_block_at(const strata_runtime *runtime, CUdeviceptr address)
{
    strata_pool_block *one = runtime->captures.pool_blocks;
    while (one && address - one->block.address >= one->block.bytes)
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
    HASH_DEL(one->pool->runtime->captures.pool_blocks, one);
    strata_entry_destroy(table, entry, one->slot);
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
        strata_capture_free_marks(&one->use);
        strata_host_free(one);
    }
    pool->spare_blocks = NULL;
}
