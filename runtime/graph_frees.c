/* Frees of blocks that captures and graphs kept. */
#include "runtime/graph_frees.h"

#include "core/base/error.h"
#include "core/stack/calls.h"
#include "core/streams/stream_map.h"
#include "runtime/captures.h"

static strata_status free_now(strata_runtime *runtime, const strata_block *block)
{
    strata_error_suppress_begin();
    strata_status status = strata_runtime_keeps(runtime, block)
                               ? strata_kept_block_free(runtime, block, STRATA_STREAM_GONE, false)
                               : strata_free_from_top_on_own_stream(runtime->top, block);
    if (status == STRATA_ERROR_STREAM_MISUSE) {
        const strata_error why = *strata_error_in_force();
        status = strata_free_from_top(runtime->top, block, STRATA_STREAM_GONE);
        if (status == STRATA_ERROR_INVALID_VALUE) /* the stream is known: the free failed for another reason */
            status = strata_error_raise_again(&why);
    }
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* Whether no other try is due: the block is freed, also if the program freed it behind the graph's back. */
static bool is_over(strata_status status)
{
    return status == STRATA_SUCCESS || status == STRATA_ERROR_DOUBLE_FREE || status == STRATA_ERROR_FOREIGN_POINTER;
}

strata_status strata_graph_free_late(strata_runtime *runtime, const strata_block *block)
{
    const strata_status status = free_now(runtime, block);
    if (is_over(status))
        return status;
    strata_captures_lock(&runtime->captures);
    strata_kept_add_due(&runtime->captures.kept, runtime->table, block); /* without host memory it is lost */
    strata_captures_unlock(&runtime->captures);
    return status;
}

strata_status strata_graph_free_dropped(strata_runtime *runtime, struct strata_kept_block *dropped)
{
    const strata_block *block = strata_kept_block_of(dropped);
    const bool waits = strata_known_timeline(runtime->device, block->stream) && strata_stream_is_forked(block->stream);
    const strata_status status = waits ? STRATA_SUCCESS : free_now(runtime, block);
    strata_captures_lock(&runtime->captures);
    strata_kept_settle(&runtime->captures.kept, runtime->table, dropped, !waits && is_over(status));
    strata_captures_unlock(&runtime->captures);
    return status;
}

void strata_graphs_free_due(strata_runtime *runtime)
{
    strata_captures *captures = &runtime->captures;
    struct strata_kept_block *dropped;
    uint64_t round = 0;
    strata_error_suppress_begin();
    do {
        strata_captures_lock(captures);
        round = round ? round : ++captures->kept.rounds;
        dropped = strata_kept_next_due(&captures->kept, runtime->table, round);
        strata_captures_unlock(captures);
        if (dropped)
            strata_graph_free_dropped(runtime, dropped);
    } while (dropped);
    strata_capture_pools_reap(runtime);
    strata_error_suppress_end(false);
}
