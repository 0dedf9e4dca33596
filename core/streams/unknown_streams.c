/* Unknown streams in use. The map's lock is held in all functions but those that prepare and drop an entry. */
#include "core/streams/unknown_streams.h"

#include "core/base/host_memory.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

struct strata_unknown_stream {
    uint64_t id;
    strata_timeline *timeline;
    UT_hash_handle hh;
};

static strata_unknown_stream *unknown; /* guarded by the map's lock */
static size_t sweep_at = 64;           /* count that makes a sweep pay off; guarded by the map's lock */

static void sweep(bool keep_with_blocks)
{
    strata_unknown_stream *stream, *next;
    HASH_ITER(hh, unknown, stream, next)
    {
        if (!strata_timeline_retire(stream->timeline, keep_with_blocks))
            continue;
        HASH_DEL(unknown, stream);
        strata_host_free(stream);
    }
    size_t left = HASH_COUNT(unknown);
    sweep_at = left < 32 ? 64 : 2 * left;
}

strata_timeline *strata_unknown_take_timeline(strata_device *device, strata_timeline_kind kind, CUstream handle,
                                              uint64_t id)
{
    strata_timeline *timeline = strata_timeline_take(device, kind, handle, id);
    if (timeline)
        return timeline;
    sweep(false);
    return strata_timeline_take(device, kind, handle, id);
}

void strata_unknown_sweep_if_due(void)
{
    if (HASH_COUNT(unknown) >= sweep_at)
        sweep(true);
}

strata_timeline *strata_unknown_find_or_take(strata_device *device, uint64_t id, bool *is_new)
{
    strata_unknown_stream *stream = NULL;
    HASH_FIND(hh, unknown, &id, sizeof id, stream);
    *is_new = !stream;
    if (stream)
        return stream->timeline;
    strata_unknown_sweep_if_due();
    stream = strata_host_zalloc(sizeof *stream);
    if (!stream)
        return NULL;
    stream->id = id;
    stream->timeline = strata_unknown_take_timeline(device, STRATA_TIMELINE_UNKNOWN, NULL, id);
    if (!stream->timeline) {
        strata_host_free(stream);
        return NULL;
    }
    HASH_ADD(hh, unknown, id, sizeof stream->id, stream);
    if (!stream->hh.tbl) {
        strata_timeline_retire(stream->timeline, false);
        strata_host_free(stream);
        return NULL;
    }
    return stream->timeline;
}

strata_timeline *strata_unknown_take_out(uint64_t id)
{
    strata_unknown_stream *stream = NULL;
    HASH_FIND(hh, unknown, &id, sizeof id, stream);
    if (!stream)
        return NULL;
    strata_timeline *timeline = stream->timeline;
    HASH_DEL(unknown, stream);
    strata_host_free(stream);
    return timeline;
}

strata_unknown_stream *strata_unknown_prepare(void)
{
    return strata_host_zalloc(sizeof(strata_unknown_stream));
}

void strata_unknown_drop(strata_unknown_stream *entry)
{
    strata_host_free(entry);
}

bool strata_unknown_enter(strata_unknown_stream *entry, uint64_t id, strata_timeline *timeline)
{
    entry->id = id;
    entry->timeline = timeline;
    HASH_ADD(hh, unknown, id, sizeof entry->id, entry);
    return entry->hh.tbl != NULL;
}

void strata_unknown_remove(strata_unknown_stream *entry)
{
    HASH_DEL(unknown, entry);
}

void strata_unknown_forget(const strata_device *lost)
{
    strata_unknown_stream *stream, *next;
    HASH_ITER(hh, unknown, stream, next)
    {
        if (stream->timeline->device != lost)
            continue;
        HASH_DEL(unknown, stream);
        strata_timeline_forget(stream->timeline);
        strata_host_free(stream);
    }
}
