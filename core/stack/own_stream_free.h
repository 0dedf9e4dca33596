/* The free of a block in the order of its allocation stream, which the caller does not name.
 *
 * The handle of that stream may be dead by now. It is used only while the stream is known, or is the calling thread's
 * own CU_STREAM_PER_THREAD:
 *
 *     allocation stream     the free is ordered after
 *     known                 the stream
 *     unregistered          the work that it had then (STRATA_STREAM_GONE)
 *     its handle is known   whichever of these applies; both if the driver gives streams no ids
 *     again
 *     never known           refused with STREAM_MISUSE
 *
 * Another thread may unregister the stream meanwhile: the free is marked as in flight (core/streams/inflight_frees.h).
 */
#ifndef STRATA_CORE_STACK_OWN_STREAM_FREE_H
#define STRATA_CORE_STACK_OWN_STREAM_FREE_H

#include "core/stack/stack.h"
#include "core/streams/inflight_frees.h"
#include "core/streams/known_streams.h"

/* Whether the timeline has had no other stream since the block was allocated on its stream. */
static inline bool strata_entry_is_incarnation(const strata_entry *entry, const strata_timeline *alloc_timeline)
{
    return atomic_load_explicit(&alloc_timeline->incarnation, memory_order_relaxed) ==
           atomic_load_explicit(&entry->alloc_incarnation, memory_order_relaxed);
}

/* Whether the block's allocation stream is known now. The block's timeline often has the handle itself, which costs
 * less than a search for it. */
static inline __attribute__((always_inline)) bool strata_alloc_stream_is_known(const strata_table *table,
                                                                               const strata_block *block)
{
    const strata_entry *entry = strata_table_lookup(table, block->id);
    if (__builtin_expect(!entry, 0))
        return false;
    const strata_timeline *alloc_timeline =
        strata_timeline_numbered(atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed));
    return alloc_timeline && strata_entry_is_incarnation(entry, alloc_timeline) &&
           (__builtin_expect(strata_timeline_is_late(alloc_timeline, block->stream), 1) ||
            strata_known_timeline(table->device, block->stream) == alloc_timeline);
}

/* As strata_free_on_own_stream, within an in-flight free, for a stream that is not known. */
strata_status strata_free_on_own_stream_slow(strata_resource *top, const strata_block *block);

/* Frees a block of the stack of `top`, the outermost layer, on its allocation stream. `table` is the stack's; `thread`
 * is the calling thread's state, or NULL. Errors: those of deallocate, STREAM_MISUSE (the stream was never known). */
static inline __attribute__((always_inline)) strata_status strata_free_on_own_stream(const strata_table *table,
                                                                                     strata_resource *top,
                                                                                     const strata_block *block,
                                                                                     strata_thread *thread)
{
    strata_inflight_free_begin(thread);
    const strata_status status = __builtin_expect(strata_alloc_stream_is_known(table, block), 1)
                                     ? top->ops->deallocate(top, block, block->stream)
                                     : strata_free_on_own_stream_slow(top, block);
    strata_inflight_free_end(thread);
    return status;
}

#endif
