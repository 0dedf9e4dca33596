/* Known streams by handle, without a lock: on the path of every allocation and use.
 *
 * An open-addressing table that only grows. Handles are reused: a key stays when its stream is unregistered, until
 * the table grows; its timeline changes. Outgrown tables stay readable for the life of the process.
 *
 * After the reset of its device a key stays known until the device is opened again. A stream that the program has since
 * made by the same handle is not told apart until it is registered or strata_stream_was_made: the driver crashes where
 * it is asked for the identity of a stream that has ended (tests/answers/h200.txt, "primary_reset.anew."). */
#ifndef STRATA_CORE_STREAMS_KNOWN_STREAMS_H
#define STRATA_CORE_STREAMS_KNOWN_STREAMS_H

#include "core/streams/timeline.h"

typedef struct strata_known_stream {
    _Atomic uintptr_t handle;            /* 0: unused; set once, under the map's lock */
    _Atomic(strata_timeline *) timeline; /* NULL: not known now; set under the map's lock */
} strata_known_stream;

typedef struct strata_known_table {
    size_t capacity;                     /* a power of two; constant */
    size_t used;                         /* guarded by the map's lock */
    struct strata_known_table *outgrown; /* or NULL; constant */
    strata_known_stream streams[];
} strata_known_table;

extern _Atomic(strata_known_table *) strata_known_streams
    __attribute__((visibility("hidden"))); /* changed under the map's lock, read by any thread */

/* Counts streams that became known or unknown: a lookup's result holds while this is unchanged. Read before the lookup;
 * changed after the table, under the map's lock. */
extern _Atomic uint64_t strata_known_changes;

static inline size_t strata_known_hash(uintptr_t handle)
{
    return (size_t)((uint64_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static inline strata_known_stream *strata_known_find(strata_known_table *table, uintptr_t handle)
{
    if (__builtin_expect(!table, 0))
        return NULL;
    for (size_t i = strata_known_hash(handle);; i++) {
        strata_known_stream *stream = &table->streams[i & (table->capacity - 1)];
        uintptr_t here = atomic_load_explicit(&stream->handle, memory_order_acquire);
        if (here == handle)
            return stream;
        if (!here)
            return NULL;
    }
}

/* The timeline of a known stream; NULL if it is unknown. */
static inline strata_timeline *strata_known_timeline(const strata_device *device, CUstream handle)
{
    if ((uintptr_t)handle <= (uintptr_t)CU_STREAM_LEGACY)
        return device->legacy;
    strata_known_stream *stream =
        strata_known_find(atomic_load_explicit(&strata_known_streams, memory_order_acquire), (uintptr_t)handle);
    return stream ? atomic_load_explicit(&stream->timeline, memory_order_acquire) : NULL;
}

bool strata_stream_is_known(CUstream handle);

/* ---- under the map's lock ---- */

/* The key of a handle, created if missing; NULL without host memory. */
strata_known_stream *strata_known_enter(uintptr_t handle);

/* Makes the key's stream known by a timeline; with NULL it is unknown from now on. */
void strata_known_set(strata_known_stream *stream, strata_timeline *timeline);

/* After the reset of a device's context: its streams are unknown and complete. */
void strata_known_forget(const strata_device *lost);

#endif
