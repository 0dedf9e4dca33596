/* What prepare, finish and free do with the points in a block's entry. <strata/resource.h> has the calls:
 * strata_block_prepare_use and its siblings. */
#ifndef STRATA_CORE_BLOCKS_USES_H
#define STRATA_CORE_BLOCKS_USES_H

#include "core/blocks/blocks.h"
#include "core/streams/timeline.h"

/* Waits for every recorded use of a live block. */
strata_status strata_uses_synchronize(strata_table *table, const strata_block *block);

/* Whether a live block has no recorded use but its allocation. */
bool strata_uses_untouched(const strata_table *table, strata_block_id id);

/* Makes recorded uses part of the allocation: for a layer that fills a block before it hands it out. */
void strata_uses_forget_touch(strata_table *table, strata_block_id id);

/* The last write of a live block, which is its allocation at first, without the write bit; 0: not live. */
strata_point strata_uses_last_write(const strata_table *table, strata_block_id id);

/* For a free with STRATA_STREAM_GONE: the last point of the allocation stream, or 0. INVALID_VALUE if the stream is
 * still known: it may have later work that no event covers. */
strata_status strata_uses_end_of_alloc_stream(const strata_entry *entry, const strata_block *block, strata_point *end);

/* Whether the block's only point is a write on the timeline. */
static inline bool strata_uses_only_on(const strata_entry *entry, const strata_timeline *timeline)
{
    strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    return strata_point_timeline(write) == timeline->number &&
           !atomic_load_explicit(&entry->last_read, memory_order_relaxed) &&
           !atomic_load_explicit(&entry->more, memory_order_relaxed);
}

/* ---- for work on blocks that nothing can free meanwhile: without pins ---- */

/* Whether a use on the timeline waits for nothing. */
static inline bool strata_uses_need_no_wait(const strata_entry *entry, const strata_timeline *timeline,
                                            strata_access access)
{
    const strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    const strata_point read =
        access & STRATA_ACCESS_WRITE ? atomic_load_explicit(&entry->last_read, memory_order_relaxed) : 0;
    return strata_point_timeline(write) == timeline->number &&
           (!read || strata_point_timeline(read) == timeline->number) &&
           !atomic_load_explicit(&entry->more, memory_order_relaxed);
}

/* Makes the stream wait for all that a use with `access` must come after. Errors: those of the wait, USE_AFTER_FREE. */
strata_status strata_uses_wait(strata_table *table, const strata_block *block, const strata_stream_ref *stream,
                               strata_access access);

/* Whether noting a use at `point` would change nothing. */
static inline bool strata_uses_are_noted(const strata_entry *entry, strata_point point, strata_access access)
{
    const strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    const strata_point read = atomic_load_explicit(&entry->last_read, memory_order_relaxed);
    const uint16_t timeline = strata_point_timeline(point);
    if (!atomic_load_explicit(&entry->touched, memory_order_relaxed))
        return false;
    if (!(access & STRATA_ACCESS_WRITE))
        return (write & ~STRATA_POINT_WRITE) == point || read == point;
    return write == (point | STRATA_POINT_WRITE) && (!read || strata_point_timeline(read) == timeline) &&
           !atomic_load_explicit(&entry->more, memory_order_relaxed);
}

/* Whether a use on the point's timeline waits for nothing and is noted already. One comparison for a write, the usual
 * case: noting it left no other point. */
static inline bool strata_uses_are_settled(const strata_entry *entry, strata_point point, strata_access access)
{
    const strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    const strata_point read = atomic_load_explicit(&entry->last_read, memory_order_relaxed);
    const uintptr_t more = (uintptr_t)atomic_load_explicit(&entry->more, memory_order_relaxed);
    const bool touched = atomic_load_explicit(&entry->touched, memory_order_relaxed);
    if (__builtin_expect(((write ^ (point | STRATA_POINT_WRITE)) | read | more) == 0, 1))
        return touched;
    return !(access & STRATA_ACCESS_WRITE) && touched && !more &&
           strata_point_timeline(write) == strata_point_timeline(point) && read == point;
}

/* Notes a use that is submitted. Errors: as strata_block_record_use. */
strata_status strata_uses_note(strata_table *table, const strata_block *block, const strata_stream_ref *stream,
                               strata_access access);

/* Before a free waits for the block's uses: records the work of the free's stream. After an error the free has done
 * nothing: the block can be freed on another stream. */
strata_status strata_uses_record_free(strata_table *table, const strata_block *block, CUstream stream);

/* Records a point that an event covers, of a stream that may be gone, as a use that reads. 0 records nothing. Errors:
 * USE_AFTER_FREE, OUT_OF_HOST_MEMORY. */
strata_status strata_uses_note_point(strata_table *table, const strata_block *block, strata_point point);

/* Copies the uses of `source`, a live block of that generation, so far: what comes after the target's comes after them.
 * The target was cut out of the source, and no other thread knows it yet. A use of the source that is recorded
 * meanwhile may be missed. False without host memory. */
bool strata_uses_inherit_slow(strata_entry *source, uint64_t generation, strata_entry *target);
static inline bool strata_uses_inherit(strata_entry *source, uint64_t generation, strata_entry *target)
{
    const strata_point write = atomic_load_explicit(&source->last_write, memory_order_relaxed);
    const strata_point read = atomic_load_explicit(&source->last_read, memory_order_relaxed);
    if (__builtin_expect(atomic_load_explicit(&source->more, memory_order_relaxed) != NULL, 0))
        return strata_uses_inherit_slow(source, generation, target);
    atomic_store_explicit(&target->last_write, write, memory_order_relaxed);
    atomic_store_explicit(&target->last_read, read, memory_order_relaxed);
    atomic_store_explicit(&target->more, NULL, memory_order_relaxed);
    return true;
}

/* Visits each point of a retired entry until a call fails. */
strata_status strata_uses_visit(const strata_entry *entry, strata_status (*visit)(strata_point point, void *data),
                                void *data);

/* Visitors. order makes a stream, a strata_stream_ref, wait for the point, by strata_timeline_order; try_order does so
 * by strata_timeline_wait, for a request that can take other memory. wait blocks the thread until the point is
 * complete, for memory of a device, by strata_point_synchronize_for. */
strata_status strata_point_order(strata_point point, void *stream);
strata_status strata_point_try_order(strata_point point, void *stream);
strata_status strata_point_wait(strata_point point, void *device);

#endif
