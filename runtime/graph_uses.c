/* What a launch of a graph waits for, and notes. */
#include "runtime/graph_uses.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "core/streams/batches.h"
#include "core/streams/stream_map.h"
#include "runtime/capture_blocks.h"

/* ---- the list ---- */

static bool reserve(strata_graph_uses *uses, size_t wanted)
{
    if (wanted <= uses->room)
        return true;
    strata_graph_use *items = strata_host_zalloc(wanted * sizeof *items);
    strata_block *blocks = strata_host_zalloc(wanted * sizeof *blocks);
    if (!items || !blocks) {
        strata_host_free(items);
        strata_host_free(blocks);
        return false;
    }
    strata_graph_uses_free(uses);
    *uses = (strata_graph_uses){.items = items, .blocks = blocks, .room = wanted};
    return true;
}

typedef struct listing {
    strata_graph_uses *uses;
    const strata_table *table;
} listing;

static void add(const listing *to, const strata_block *block, strata_access access, bool of_pool)
{
    const size_t at = to->uses->count++;
    to->uses->items[at] = (strata_graph_use){strata_table_lookup(to->table, block->id), access, of_pool};
    to->uses->blocks[at] = *block;
}

static void list(const listing *to, const strata_capture_uses *of)
{
    to->uses->count = 0;
    for (size_t i = 0; i < of->count; i++) {
        const strata_capture_use *use = &of->items[i];
        if (use->access == STRATA_ACCESS_NONE)
            continue;
        add(to, &use->block, use->access, false);
        if (use->kind == STRATA_CAPTURE_SEGMENT)
            for (const strata_pool_block *one = use->pool->blocks; one; one = one->next)
                if (one->range->segment->block.id.slot == use->block.id.slot)
                    add(to, &one->block, STRATA_ACCESS_WRITE, true);
    }
}

uint64_t strata_graph_uses_changes(const strata_capture_uses *of, const strata_capture_pool *pool)
{
    uint64_t changes = atomic_load_explicit(&pool->changes, memory_order_acquire);
    for (size_t i = 0; i < of->part_count; i++)
        changes += atomic_load_explicit(&of->parts[i]->changes, memory_order_acquire);
    return changes;
}

static size_t count_most(const strata_capture_uses *of, const strata_capture_pool *pool)
{
    size_t count = of->count + pool->live_blocks;
    for (size_t i = 0; i < of->part_count; i++)
        count += of->parts[i]->live_blocks;
    return count;
}

strata_status strata_graph_uses_list(strata_graph_uses *uses, const strata_capture_uses *of, strata_capture_pool *pool)
{
    if (uses->listed && uses->changes == strata_graph_uses_changes(of, pool))
        return STRATA_SUCCESS;
    const listing to = {uses, pool->runtime->table};
    strata_captures_lock(&pool->runtime->captures);
    const bool reserved = reserve(uses, count_most(of, pool));
    if (reserved) {
        list(&to, of);
        uses->changes = strata_graph_uses_changes(of, pool);
        uses->listed = true;
    }
    strata_captures_unlock(&pool->runtime->captures);
    return reserved ? STRATA_SUCCESS : strata_fail_host_memory("the blocks of a graph");
}

void strata_graph_uses_free(strata_graph_uses *uses)
{
    strata_host_free(uses->items);
    strata_host_free(uses->blocks);
    *uses = (strata_graph_uses){0};
}

/* ---- a launch ---- */

/* Accepts that a block of the pool was freed meanwhile. */
static strata_status forgive(const strata_graph_use *use, strata_status status)
{
    return status == STRATA_ERROR_USE_AFTER_FREE && use->of_pool ? STRATA_SUCCESS : status;
}

static strata_status wait_from(const strata_graph_uses *uses, size_t first, const strata_runtime *runtime,
                               CUstream handle)
{
    strata_stream_ref stream;
    strata_status status = strata_batch_begin(runtime->device, handle, false); /* identifies the stream once */
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_stream_resolve(runtime->device, handle, &stream);
    strata_error_suppress_begin();
    for (size_t i = first; i < uses->count && status == STRATA_SUCCESS; i++)
        status = forgive(&uses->items[i],
                         strata_uses_wait(runtime->table, &uses->blocks[i], &stream, uses->items[i].access));
    strata_error_suppress_end(status != STRATA_SUCCESS);
    strata_batch_end();
    return status;
}

strata_status strata_graph_uses_wait(const strata_graph_uses *uses, const strata_runtime *runtime, CUstream stream,
                                     strata_point *noted)
{
    const strata_timeline *timeline = strata_known_timeline(runtime->device, stream);
    const strata_point point = timeline ? strata_timeline_now(timeline) : 0;
    size_t first = 0;
    *noted = 0;
    if (!timeline)
        return uses->count ? wait_from(uses, 0, runtime, stream) : STRATA_SUCCESS;
    while (first < uses->count && strata_uses_are_settled(uses->items[first].entry, point, uses->items[first].access))
        first++;
    if (first == uses->count && !strata_timeline_is_early(timeline))
        *noted = point;
    while (first < uses->count &&
           strata_uses_need_no_wait(uses->items[first].entry, timeline, uses->items[first].access))
        first++;
    return first == uses->count ? STRATA_SUCCESS : wait_from(uses, first, runtime, stream);
}

/* Notes all uses, even after a failure; returns the first failure. */
static strata_status note_all(const strata_graph_uses *uses, const strata_runtime *runtime,
                              const strata_stream_ref *stream)
{
    strata_status status = STRATA_SUCCESS;
    strata_error_suppress_begin();
    for (size_t i = 0; i < uses->count; i++) {
        const strata_graph_use *use = &uses->items[i];
        if (stream->known && strata_uses_are_noted(use->entry, strata_timeline_now(stream->timeline), use->access))
            continue;
        const strata_status one = forgive(use, strata_uses_note(runtime->table, &uses->blocks[i], stream, use->access));
        status = status == STRATA_SUCCESS ? one : status;
    }
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* Where no event can be recorded for all, and the stream cannot be waited for: each block's record does what it can. */
static __attribute__((cold)) strata_status note_apart(const strata_graph_uses *uses, const strata_runtime *runtime,
                                                      CUstream handle)
{
    strata_resource *top = runtime->top;
    strata_status status = STRATA_SUCCESS;
    strata_error_suppress_begin();
    for (size_t i = 0; i < uses->count; i++) {
        const strata_graph_use *use = &uses->items[i];
        const strata_status one = forgive(use, top->ops->record_use(top, &uses->blocks[i], handle, use->access));
        status = status == STRATA_SUCCESS ? one : status;
    }
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* Notes all uses under one event. */
static strata_status note_with_event(const strata_graph_uses *uses, const strata_runtime *runtime, CUstream handle)
{
    bool begun;
    strata_stream_ref stream;
    strata_status status = strata_batch_begin_or_wait(runtime->device, handle, &begun);
    if (!begun)
        return status == STRATA_SUCCESS ? status : note_apart(uses, runtime, handle);
    status = strata_stream_resolve(runtime->device, handle, &stream);
    if (status == STRATA_SUCCESS)
        status = note_all(uses, runtime, &stream);
    const strata_status ended = strata_batch_end();
    return status == STRATA_SUCCESS ? ended : status;
}

strata_status strata_graph_uses_note(const strata_graph_uses *uses, const strata_runtime *runtime, CUstream handle,
                                     strata_point noted)
{
    strata_timeline *timeline = strata_known_timeline(runtime->device, handle);
    if (!uses->count || (noted && timeline && strata_timeline_now(timeline) == noted))
        return STRATA_SUCCESS;
    if (!timeline || strata_timeline_is_early(timeline))
        return note_with_event(uses, runtime, handle);
    const strata_stream_ref stream = {.timeline = timeline, .device = runtime->device, .handle = handle, .known = true};
    return note_all(uses, runtime, &stream);
}
