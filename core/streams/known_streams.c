/* The table of known streams: entering, and growing. */
#include "core/streams/known_streams.h"

#include "core/base/host_memory.h"

_Atomic(strata_known_table *) strata_known_streams;
_Atomic uint64_t strata_known_changes;

bool strata_stream_is_known(CUstream handle)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY)
        return true;
    const strata_known_stream *stream =
        strata_known_find(atomic_load_explicit(&strata_known_streams, memory_order_acquire), (uintptr_t)handle);
    return stream && atomic_load_explicit(&stream->timeline, memory_order_acquire);
}

static strata_known_table *grow(strata_known_table *old)
{
    size_t capacity = old ? 2 * old->capacity : 64;
    strata_known_table *table = strata_host_zalloc(sizeof *table + capacity * sizeof table->streams[0]);
    if (!table)
        return NULL;
    table->outgrown = old;
    table->capacity = capacity;
    for (size_t i = 0; old && i < old->capacity; i++) {
        uintptr_t handle = atomic_load_explicit(&old->streams[i].handle, memory_order_relaxed);
        strata_timeline *timeline = atomic_load_explicit(&old->streams[i].timeline, memory_order_relaxed);
        if (!handle || !timeline)
            continue;
        size_t at = strata_known_hash(handle);
        while (atomic_load_explicit(&table->streams[at & (capacity - 1)].handle, memory_order_relaxed))
            at++;
        strata_known_stream *stream = &table->streams[at & (capacity - 1)];
        atomic_store_explicit(&stream->timeline, timeline, memory_order_relaxed);
        atomic_store_explicit(&stream->handle, handle, memory_order_relaxed);
        table->used++;
    }
    atomic_store_explicit(&strata_known_streams, table, memory_order_release);
    return table;
}

strata_known_stream *strata_known_enter(uintptr_t handle)
{
    strata_known_table *table = atomic_load_explicit(&strata_known_streams, memory_order_relaxed);
    strata_known_stream *stream = strata_known_find(table, handle);
    if (stream)
        return stream;
    if ((!table || 2 * (table->used + 1) > table->capacity) && !(table = grow(table)))
        return NULL;
    size_t at = strata_known_hash(handle);
    while (atomic_load_explicit(&table->streams[at & (table->capacity - 1)].handle, memory_order_relaxed))
        at++;
    stream = &table->streams[at & (table->capacity - 1)];
    atomic_store_explicit(&stream->handle, handle, memory_order_release);
    table->used++;
    return stream;
}

void strata_known_set(strata_known_stream *stream, strata_timeline *timeline)
{
    atomic_store_explicit(&stream->timeline, timeline, memory_order_release);
    atomic_fetch_add_explicit(&strata_known_changes, 1, memory_order_release);
}

void strata_known_forget(const strata_device *lost)
{
    strata_known_table *table = atomic_load_explicit(&strata_known_streams, memory_order_relaxed);
    for (size_t i = 0; table && i < table->capacity; i++) {
        strata_timeline *timeline = atomic_load_explicit(&table->streams[i].timeline, memory_order_relaxed);
        if (!timeline || timeline->device != lost)
            continue;
        strata_known_set(&table->streams[i], NULL);
        strata_timeline_forget(timeline);
    }
}
