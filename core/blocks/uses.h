/* Uses of blocks: what prepare, finish and free do with the points in a block's entry. prepare, finish and record
 * themselves are strata_block_prepare_use and its family in <strata/resource.h>. */
#ifndef STRATA_CORE_BLOCKS_USES_H
#define STRATA_CORE_BLOCKS_USES_H

#include "core/blocks/blocks.h"
#include "core/streams/stream_map.h"

/* Blocks until every recorded use of a live block is complete. */
strata_status strata_uses_synchronize(strata_table *table, const strata_block *block);

/* Whether no use but its allocation was recorded on a live block. */
bool strata_uses_untouched(const strata_table *table, strata_block_id id);

/* Counts the recorded uses as part of the allocation: for a layer that has filled a block before it hands it out. */
void strata_uses_forget_touch(strata_table *table, strata_block_id id);

/* For a free with STRATA_STREAM_GONE: the last point of its allocation stream, 0 if there is nothing to wait for.
 * INVALID_VALUE if that stream is still known: it may have later work that no event covers. */
strata_status strata_uses_end_of_alloc_stream(const strata_entry *entry, const strata_block *block, strata_point *end);

/* Whether the block's only point is a write on the timeline. */
static inline bool strata_uses_only_on(const strata_entry *entry, const strata_timeline *timeline)
{
    strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    return strata_point_timeline(write) == timeline->number &&
           !atomic_load_explicit(&entry->last_read, memory_order_relaxed) &&
           !atomic_load_explicit(&entry->more, memory_order_relaxed);
}

/* Calls visit(point, data) for each recorded point of a retired entry, which belongs to the caller alone, until a call
 * fails. */
strata_status strata_uses_visit(const strata_entry *entry, strata_status (*visit)(strata_point point, void *data),
                                void *data);

/* Visitors: makes a stream, a strata_stream_ref, wait for the point; blocks the thread until the point is complete. */
strata_status strata_point_order(strata_point point, void *stream);
strata_status strata_point_wait(strata_point point, void *unused);

#endif
