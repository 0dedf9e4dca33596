/* Frees that are refused while another library knows the block. */
#include "runtime/registrations.h"

#include "core/base/error.h"
#include "runtime/capture_blocks.h"
#include "runtime/captures.h"
#include "runtime/graph_frees.h"

/* Compares the block's facts with the table's; strata_kept_add refuses an identity that is not live. */
static strata_status check_facts(const strata_runtime *runtime, const strata_block *block)
{
    strata_block allocated;
    const bool live = block->id.table == strata_table_id(runtime->table) &&
                      strata_table_state(runtime->table, block->id) == STRATA_BLOCK_LIVE &&
                      strata_entry_describe(runtime->table, block->id.slot, &allocated);
    return live && allocated.id.generation == block->id.generation ? strata_check_block_facts(&allocated, block)
                                                                   : STRATA_SUCCESS;
}

/* The captures' lock is held. */
static strata_status keep(strata_runtime *runtime, const strata_block *block, const char *library)
{
    strata_kept_blocks *kept = &runtime->captures.kept;
    if (strata_pool_block_find(runtime, block->id))
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "block 0x%llx was allocated in a capture: its memory is other blocks' too; register a block "
                           "that was allocated outside",
                           (unsigned long long)block->address);
    const strata_status status = strata_kept_add(kept, runtime->table, block);
    if (status == STRATA_SUCCESS)
        strata_kept_register(kept, block, library);
    return status;
}

strata_status strata_registration_begin(strata_runtime *runtime, const strata_block *block, const char *library)
{
    strata_status status = check_facts(runtime, block);
    if (status != STRATA_SUCCESS)
        return status;
    atomic_store_explicit(&runtime->captures.used, true, memory_order_relaxed); /* frees look for kept blocks */
    strata_error_suppress_begin();
    strata_captures_lock(&runtime->captures);
    status = keep(runtime, block, library);
    strata_captures_unlock(&runtime->captures);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

void strata_registration_end(strata_runtime *runtime, const strata_block *block)
{
    strata_captures_lock(&runtime->captures);
    strata_kept_unregister(&runtime->captures.kept, block);
    struct strata_kept_block *freed = strata_kept_drop(&runtime->captures.kept, runtime->table, block);
    strata_captures_unlock(&runtime->captures);
    if (freed) /* no free of a registered block succeeds: unless the last one of a graph came before */
        strata_graph_free_dropped(runtime, freed);
}
