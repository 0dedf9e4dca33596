/* Uses of blocks: what prepare, finish and free do with the points in a block's entry. <strata/resource.h> has prepare,
 * finish and record themselves: strata_block_prepare_use and its siblings. */
#ifndef STRATA_CORE_BLOCKS_USES_H
#define STRATA_CORE_BLOCKS_USES_H

#include "core/blocks/blocks.h"
#include "core/streams/stream_map.h"

/* Blocks until every recorded use of a live block is complete. */
strata_status strata_uses_synchronize(strata_table *table, const strata_block *block);

/* Whether a live block has no recorded use but its allocation. */
bool strata_uses_untouched(const strata_table *table, strata_block_id id);

/* Makes the recorded uses part of the allocation: for a layer that fills a block before it hands it out. */
void strata_uses_forget_touch(strata_table *table, strata_block_id id);

/* For a free with STRATA_STREAM_GONE: the last point of the allocation stream, 0 if there is none. INVALID_VALUE if the
 * stream is still known: it may have later work that no event covers. */
strata_status strata_uses_end_of_alloc_stream(const strata_entry *entry, const strata_block *block, strata_point *end);

/* Whether the block's only point is a write on the timeline. */
static inline bool strata_uses_only_on(const strata_entry *entry, const strata_timeline *timeline)
{
    strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    return strata_point_timeline(write) == timeline->number &&
           !atomic_load_explicit(&entry->last_read, memory_order_relaxed) &&
           !atomic_load_explicit(&entry->more, memory_order_relaxed);
}

/* Calls visit(point, data) for each point of a retired entry until a call fails. */
strata_status strata_uses_visit(const strata_entry *entry, strata_status (*visit)(strata_point point, void *data),
                                void *data);

/* Visitors: makes a stream, a strata_stream_ref, wait for the point; blocks the thread until the point is complete. */
strata_status strata_point_order(strata_point point, void *stream);
strata_status strata_point_wait(strata_point point, void *unused);

#endif
