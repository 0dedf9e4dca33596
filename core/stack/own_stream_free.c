/* Finds the stream that a free can name: the block's allocation stream, if it can still be used. */
#include "core/stack/own_stream_free.h"

#include "core/base/error.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"

/* Whether the block was allocated on the timeline's current stream. */
static inline bool is_alloc_timeline(const strata_entry *entry, const strata_timeline *timeline)
{
    return timeline->number == atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed) &&
           strata_entry_is_incarnation(entry, timeline);
}

/* The handle of the block's allocation stream is known with another timeline. If the block's timeline has gone to
 * another stream, all its points are complete, and freeing on the handle is right, whichever stream it names. Otherwise
 * it names another stream; without stream ids from the driver that is uncertain, and the free waits for both. */
static strata_status reused_handle_stream(const strata_entry *entry, const strata_stream_ref *now, CUstream *stream)
{
    uint16_t number = atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed);
    const strata_timeline *alloc_timeline = strata_timeline_of(strata_point_make(number, 1));
    if (strata_entry_is_incarnation(entry, alloc_timeline) && strata_cu.StreamGetId) {
        *stream = STRATA_STREAM_GONE;
        return STRATA_SUCCESS;
    }
    strata_point last = strata_entry_is_incarnation(entry, alloc_timeline) ? strata_timeline_last_closed(number) : 0;
    return last ? strata_timeline_order(now, last) : STRATA_SUCCESS;
}

/* Whether the allocation stream is known, also one with early events, or the legacy stream by its other handle. */
static bool alloc_stream_is_known(const strata_table *table, const strata_block *block, const strata_entry *entry)
{
    const strata_timeline *timeline = strata_known_timeline(table->device, block->stream);
    return timeline && is_alloc_timeline(entry, timeline);
}

/* Whether the allocation stream was unregistered or has ended. While it is unregistered, this and alloc_stream_is_known
 * are both false for a moment. */
static bool alloc_stream_has_ended(const strata_entry *entry)
{
    return !strata_timeline_is_known(atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed),
                                     atomic_load_explicit(&entry->alloc_incarnation, memory_order_relaxed));
}

static __attribute__((cold)) strata_status refuse_unnamed(const strata_block *block, CUstream stream)
{
    strata_error *error = strata_block_error(STRATA_ERROR_STREAM_MISUSE, block);
    const char *why = stream == CU_STREAM_PER_THREAD
                          ? "the per-thread default stream of another thread; free it on that thread, or with "
                            "strata_runtime_deallocate_on and a stream that is ordered after its work"
                          : "an unregistered stream, whose handle may be invalid by now; free it with "
                            "strata_runtime_deallocate_on, or register the stream";
    return strata_error_raise(error, "block 0x%llx (tag \"%s\", generation %llu) was allocated on %s",
                              (unsigned long long)block->address, strata_tag_name(block->tag),
                              (unsigned long long)block->id.generation, why);
}

/* The stream on which a live block is freed: its allocation stream, if that can still be named. */
static strata_status alloc_stream(strata_device *device, const strata_block *block, const strata_entry *entry,
                                  CUstream *stream)
{
    *stream = entry->stream;
    for (unsigned spins = 0;; strata_backoff(&spins)) {
        strata_stream_ref ref;
        if (strata_stream_is_known(entry->stream) || entry->stream == CU_STREAM_PER_THREAD) {
            strata_status status = strata_stream_resolve(device, entry->stream, &ref);
            if (status != STRATA_SUCCESS || is_alloc_timeline(entry, ref.timeline))
                return status;
            if (entry->alloc_known && ref.known)
                return reused_handle_stream(entry, &ref, stream);
        }
        if (!entry->alloc_known)
            return refuse_unnamed(block, entry->stream);
        if (alloc_stream_has_ended(entry)) {
            *stream = STRATA_STREAM_GONE;
            return STRATA_SUCCESS;
        }
    }
}

/* Frees a block whose allocation stream was unregistered. *again: the stream was registered again meanwhile, and the
 * block is not freed. */
static strata_status deallocate_gone(strata_resource *top, const strata_block *block, const strata_entry *entry,
                                     bool *again)
{
    strata_error_suppress_begin();
    const strata_status status = top->ops->deallocate(top, block, STRATA_STREAM_GONE);
    *again = status == STRATA_ERROR_INVALID_VALUE && !alloc_stream_has_ended(entry);
    strata_error_suppress_end(status != STRATA_SUCCESS && !*again);
    return status;
}

strata_status strata_free_on_own_stream_slow(strata_resource *top, const strata_block *block)
{
    const strata_table *table = strata_resource_table(top);
    const strata_entry *entry = strata_table_lookup(table, block->id);
    strata_status status;
    bool again;
    if (entry && alloc_stream_is_known(table, block, entry))
        return top->ops->deallocate(top, block, block->stream);
    do {
        CUstream stream = block->stream;
        if (entry && strata_table_state(table, block->id) == STRATA_BLOCK_LIVE &&
            (status = alloc_stream(table->device, block, entry, &stream)) != STRATA_SUCCESS)
            return status;
        if (stream != STRATA_STREAM_GONE || !entry)
            return top->ops->deallocate(top, block, stream); /* raises the error if the block is not live */
        status = deallocate_gone(top, block, entry, &again);
    } while (again);
    return status;
}
