/* Who touched a block and where: what prepare, finish and free do with the points in a block's entry. prepare, finish
 * and record themselves are strata_block_prepare_use and its family in <strata/resource.h>. */
#ifndef STRATA_CORE_BLOCKS_USES_H
#define STRATA_CORE_BLOCKS_USES_H

#include "core/blocks/blocks.h"
#include "core/streams/stream_map.h"

/* Work was submitted to a stream and cannot be noted, because of `why`: waits for it on the host, so that there is
 * nothing to note. SUCCESS, or `why` if that cannot be done: then the work may be missed by whoever comes after it. */
strata_status strata_uses_wait_instead(strata_device *device, CUstream handle, strata_status why);

/* Waits on the host for everything that was submitted to a stream, and notes that it is complete. Errors: as of
 * strata_runtime_stream_synchronize. */
strata_status strata_uses_synchronize_stream(strata_device *device, CUstream handle);

/* Blocks the calling thread until every noted use of a live block is complete. */
strata_status strata_uses_synchronize(strata_table *table, const strata_block *block);

/* Whether nothing but its allocation was ever noted on a live block. */
bool strata_uses_untouched(const strata_table *table, strata_block_id id);

/* What was noted so far is part of the allocation: for a layer that has filled a block which nobody else knows yet. */
void strata_uses_forget_touch(strata_table *table, strata_block_id id);

/* For a free with STRATA_STREAM_GONE: up to where its own stream is to be waited
 * for, 0 if there is nothing. INVALID_VALUE if that stream is known still: it may have been given work since that
 * nothing marks. */
strata_status strata_uses_end_of_alloc_stream(const strata_entry *entry, const strata_block *block, strata_point *end);

/* For a retired entry, which is the caller's alone: calls visit(point, data) for each noted point until one fails. */
strata_status strata_uses_visit(const strata_entry *entry, strata_status (*visit)(strata_point point, void *data),
                                void *data);

#endif
