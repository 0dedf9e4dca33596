/* For layers outside the library: creating and ending blocks, use tracking, quarantine. */
#include "core/base/error.h"
#include "core/blocks/blocks.h"
#include "core/blocks/uses.h"
#include "core/stack/completions.h"
#include "core/streams/use_records.h"

strata_status strata_block_create(strata_resource *owner, const strata_block *facts, strata_block *out)
{
    if (!owner || !owner->stack || !facts || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_block_create: owner, facts or out is NULL");
    *out = (strata_block){0};
    if (facts->alignment == 0 || facts->alignment & (facts->alignment - 1))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "alignment of %zu bytes is not a power of two",
                           facts->alignment);
    strata_table *table = strata_resource_table(owner);
    uint32_t slot = strata_table_take_slot(table);
    if (!slot)
        return strata_fail_host_memory("a block");
    strata_use_record record;
    strata_status status = strata_use_record_begin(&record, table->device, facts->stream);
    if (status != STRATA_SUCCESS) {
        strata_table_give_slot(table, slot);
        return status;
    }
    strata_block made = *facts;
    strata_entry_publish(table, slot, record.stream.timeline, record.stream.known, &made);
    status = strata_use_record_end(&record);
    if (status == STRATA_SUCCESS)
        *out = made;
    else
        strata_entry_destroy(table, strata_table_entry(table, slot), slot);
    return status;
}

strata_status strata_block_free(strata_resource *owner, const strata_block *block)
{
    if (!owner || !owner->stack || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_block_free: owner or block is NULL");
    strata_table *table = strata_resource_table(owner);
    strata_entry *entry;
    strata_status status = strata_entry_retire(table, block, &entry);
    if (status != STRATA_SUCCESS)
        return status;
    strata_report_completion(owner, &(strata_completion){.id = block->id, .bytes = block->bytes, .last = true});
    strata_entry_destroy(table, entry, block->id.slot);
    return STRATA_SUCCESS;
}

/* Waits for the work that the block's stream had when it was unregistered. */
static strata_status wait_without_stream(strata_table *table, const strata_block *block)
{
    const strata_entry *entry = strata_table_lookup(table, block->id);
    strata_point end = 0;
    strata_status status = entry ? strata_uses_end_of_alloc_stream(entry, block, &end) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = strata_uses_synchronize(table, block);
    return status == STRATA_SUCCESS && end ? strata_point_synchronize_for(table->device, end) : status;
}

strata_status strata_block_wait_uses(strata_resource *owner, const strata_block *block, CUstream stream)
{
    if (!owner || !owner->stack || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_block_wait_uses: owner or block is NULL");
    strata_table *table = strata_resource_table(owner);
    if (stream == STRATA_STREAM_GONE)
        return wait_without_stream(table, block);
    strata_status status = strata_uses_record_free(table, block, stream);
    return status == STRATA_SUCCESS ? strata_uses_synchronize(table, block) : status;
}

strata_status strata_block_quarantine(strata_resource *layer, const strata_block *block, const strata_block *shown,
                                      strata_block_id *held)
{
    if (!layer || !layer->stack || !block || !shown || !held)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_block_quarantine: layer or block is NULL");
    return strata_entry_quarantine(strata_resource_table(layer), block, shown, held);
}

void strata_block_unquarantine(strata_resource *layer, strata_block_id held)
{
    if (layer && layer->stack)
        strata_entry_unquarantine(strata_resource_table(layer), held);
}

void *strata_block_layer_bytes(const strata_resource *self, strata_block_id id)
{
    strata_entry *entry = self && self->stack ? strata_table_lookup(strata_resource_table(self), id) : NULL;
    return entry ? (char *)entry + self->block_offset : NULL;
}
