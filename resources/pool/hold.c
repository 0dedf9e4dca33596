/* Holds on blocks. A live block's chunks are neither moved nor returned, so the time between an allocation and its hold
 * is safe. */
#include "core/base/error.h"
#include "resources/chunks/holds.h"
#include "resources/pool/operations.h"
#include "resources/pool/thread_cache.h"

pool *pool_at_or_below(strata_resource *resource)
{
    for (strata_resource *layer = resource; layer; layer = strata_resource_next_below(resource, layer))
        if (layer->ops && layer->stack && layer->ops->describe == pool_describe) /* the stack copies ops tables */
            return (pool *)layer;
    return NULL;
}

static strata_status check_block(pool *self, const strata_block *block)
{
    const strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), block->id);
    const uint64_t word = entry ? atomic_load_explicit(&entry->word, memory_order_acquire) : 0;
    strata_spin_take(&self->lock); /* a layer may have cut the block from one of the pool's */
    const bool taken = pool_heap_is_taken(&self->heap, block->address, block->bytes);
    strata_spin_release(&self->lock);
    if (!entry || (strata_word_lives(word, block->id.generation) && !taken))
        return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "the block at 0x%llx is not in memory of this pool",
                           (unsigned long long)block->address);
    if (!strata_word_lives(word, block->id.generation))
        return strata_fail(STRATA_ERROR_USE_AFTER_FREE, "cannot hold block 0x%llx: it is no longer live",
                           (unsigned long long)block->address);
    return STRATA_SUCCESS;
}

/* ---- public calls ---- */

static strata_status check_call(strata_resource *resource, const strata_block *block, strata_pool_hold **out,
                                pool **self)
{
    strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    if (!block || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "holding a block: %s is NULL", block ? "out" : "block");
    *self = pool_at_or_below(resource);
    return *self ? STRATA_SUCCESS
                 : strata_fail(STRATA_ERROR_INVALID_VALUE, "holding a block: no pool at or below this layer");
}

/* Checks the caller's copy of a block; unknown blocks are left to check_block. */
static strata_status check_copy(strata_resource *resource, const strata_block *block)
{
    strata_block shown;
    strata_error_suppress_begin();
    const strata_status status = resource->ops->find(resource, block->address, &shown);
    strata_error_suppress_end(false);
    const bool same = status == STRATA_SUCCESS && shown.id.table == block->id.table &&
                      shown.id.slot == block->id.slot && shown.id.generation == block->id.generation;
    return same ? strata_check_block_facts(&shown, block) : STRATA_SUCCESS;
}

static strata_status begin(strata_resource *resource, const strata_block *block, bool exports, strata_pool_hold **out)
{
    pool *self = NULL;
    if (out)
        *out = NULL;
    strata_status status = check_call(resource, block, out, &self);
    if (status != STRATA_SUCCESS)
        return status;
    if (exports && self->store.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "this pool's memory cannot be exported: make it with export=fd or export=fabric");
    if (!strata_block_is_empty(block) && (status = check_copy(resource, block)) != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&self->map_lock);
    status = strata_block_is_empty(block) ? STRATA_SUCCESS : check_block(self, block);
    strata_pool_hold *hold = status == STRATA_SUCCESS ? pool_hold_make(&self->store, block) : NULL;
    if (status == STRATA_SUCCESS && !hold)
        status = strata_fail_host_memory("a hold");
    if (status == STRATA_SUCCESS && exports)
        status = pool_hold_export(hold);
    if (status != STRATA_SUCCESS && hold)
        pool_hold_drop(hold);
    strata_lock_release(&self->map_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (status == STRATA_SUCCESS)
        *out = hold;
    return status;
}

strata_status strata_pool_hold_begin(strata_resource *resource, const strata_block *block, strata_pool_hold **out)
{
    return begin(resource, block, false, out);
}

strata_status strata_pool_export(strata_resource *resource, const strata_block *block, strata_pool_hold **out)
{
    return begin(resource, block, true, out);
}

void strata_pool_hold_end(strata_pool_hold *hold)
{
    if (!hold || strata_check_not_forked() != STRATA_SUCCESS)
        return;
    pool *self = (pool *)pool_hold_store(hold)->pool;
    strata_lock_take(&self->map_lock);
    pool_hold_drop(hold);
    strata_lock_release(&self->map_lock);
}
