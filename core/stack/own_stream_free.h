/* Frees a block in the order of its allocation stream, which the caller does not name. The handle may be dead: it is
 * used only while the stream is known, or is the calling thread's own CU_STREAM_PER_THREAD.
 *
 *     the stream            the free is ordered after
 *     is known              the stream
 *     was unregistered      the work that it had then (STRATA_STREAM_GONE)
 *     never was known       refused with STREAM_MISUSE
 *
 * If a handle is known again, one of the first two applies; both if the driver gives streams no ids. Another thread may
 * unregister the stream meanwhile: the free is marked as in flight (core/streams/inflight_frees.h). */
#ifndef STRATA_CORE_STACK_OWN_STREAM_FREE_H
#define STRATA_CORE_STACK_OWN_STREAM_FREE_H

#include "core/stack/stack.h"
#include "core/streams/inflight_frees.h"
#include "core/streams/known_streams.h"

/* No other stream has had the timeline since the allocation. */
static inline bool strata_entry_is_incarnation(const strata_entry *entry, const strata_timeline *alloc_timeline)
{
    return atomic_load_explicit(&alloc_timeline->incarnation, memory_order_relaxed) ==
           atomic_load_explicit(&entry->alloc_incarnation, memory_order_relaxed);
}

/* The block's timeline often has the handle itself, which is cheaper than a search. */
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

/* Within an in-flight free, if the stream is not known. */
strata_status strata_free_on_own_stream_slow(strata_resource *top, const strata_block *block);

/* Through the outermost layer of the stack. `table` is the stack's; `thread` is the calling thread's state, or NULL.
 * Errors: those of deallocate, STREAM_MISUSE (the stream never was known). */
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
