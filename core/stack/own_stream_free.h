/* Frees a block in the order of its allocation stream, which the caller does not name. The handle may be dead: it is
 * used only while the stream is known, or is the calling thread's own CU_STREAM_PER_THREAD.
 *
 *     the stream            the free is ordered after
 *     is known              the stream
 *     was unregistered      the work that it had then (STRATA_STREAM_GONE)
 *     never was known       refused with STREAM_MISUSE
 *
 * If a handle is known again, one of the first two applies; both if the driver gives streams no ids. Another thread may
 * unregister the stream meanwhile: before the handle goes to the driver, the free is marked as in flight
 * (core/streams/inflight_frees.h), and the stream looked up anew. */
#ifndef STRATA_CORE_STACK_OWN_STREAM_FREE_H
#define STRATA_CORE_STACK_OWN_STREAM_FREE_H

#include "core/stack/stack.h"
#include "core/streams/inflight_frees.h"
#include "core/streams/known_streams.h"

/* Whether the timeline is still that of the stream on which the block was allocated. */
static inline bool strata_entry_is_incarnation(const strata_entry *entry, const strata_timeline *alloc_timeline)
{
    return atomic_load_explicit(&alloc_timeline->incarnation, memory_order_relaxed) ==
           atomic_load_explicit(&entry->alloc_incarnation, memory_order_relaxed);
}

/* The block's allocation timeline if its stream is known as `stream`, without early events; else NULL. The timeline has
 * the handle, so no search is needed. */
static inline __attribute__((always_inline)) strata_timeline *strata_late_alloc_timeline(const strata_entry *entry,
                                                                                         CUstream stream)
{
    strata_timeline *timeline =
        strata_timeline_numbered(atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed));
    const bool late =
        timeline && strata_entry_is_incarnation(entry, timeline) && strata_timeline_is_late(timeline, stream);
    return __builtin_expect(late, 1) ? timeline : NULL;
}

/* As strata_free_on_own_stream, for any allocation stream. The caller has marked the free as in flight. */
strata_status strata_free_on_own_stream_slow(strata_resource *layer, const strata_block *block);

/* Frees a block on its allocation stream through this layer's deallocate, marked as in flight. `entry` has the block's
 * slot; `thread` is the calling thread's state, or NULL. Errors: those of deallocate, STREAM_MISUSE (the stream never
 * was known). */
static inline __attribute__((always_inline)) strata_status strata_free_on_own_stream(strata_resource *layer,
                                                                                     const strata_block *block,
                                                                                     const strata_entry *entry,
                                                                                     strata_thread *thread)
{
    strata_inflight_free_begin(thread);
    const bool late = strata_late_alloc_timeline(entry, block->stream) != NULL;
    const strata_status status = __builtin_expect(late, 1) ? layer->ops->deallocate(layer, block, block->stream)
                                                           : strata_free_on_own_stream_slow(layer, block);
    strata_inflight_free_end(thread);
    return status;
}

#endif
