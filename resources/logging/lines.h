/* The words of a line, and the lines of calls that are recorded on the fast path. */
#ifndef STRATA_RESOURCES_LOGGING_LINES_H
#define STRATA_RESOURCES_LOGGING_LINES_H

#include "core/base/timestamp.h"
#include "resources/logging/internal.h"

static inline uint32_t log_stream_number(uint16_t number, uint32_t incarnation)
{
    return incarnation << 16 | number;
}

/* Of a block's allocation, also once its stream has ended. */
static inline uint32_t log_alloc_stream_id(const strata_entry *entry)
{
    return log_stream_number(atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed),
                             atomic_load_explicit(&entry->alloc_incarnation, memory_order_relaxed));
}

static inline uint64_t log_what(strata_log_kind kind, strata_status status, unsigned flags, uint64_t generation)
{
    return generation << LOG_WHAT_GENERATION | (uint64_t)flags << LOG_WHAT_FLAGS | (uint64_t)kind << LOG_WHAT_KIND |
           ((unsigned)status < 0xff ? (unsigned)status : 0xffu);
}

_Static_assert((uint64_t)STRATA_ENTRY_CHUNK *STRATA_ENTRY_CHUNKS <= UINT64_C(1) + LOG_SLOT_LIMIT, "a line has room");

/* A line's word of place, for a slot in the table. Stores alignment 0 as 1. */
static inline uint64_t log_where(strata_tag tag, uint32_t slot, strata_access access, size_t alignment)
{
    const uint64_t logarithm = 63 - (uint64_t)__builtin_clzll(alignment | 1);
    return (uint64_t)tag << LOG_WHERE_TAG | (uint64_t)slot << LOG_WHERE_SLOT | (uint64_t)access << LOG_WHERE_ACCESS |
           logarithm;
}

/* The ring for the fast path: no durations, not nested. NULL: take the slow path. */
static inline log_ring *logging_fast_ring(logging *self)
{
    if (__builtin_expect(!atomic_load_explicit(&self->fast, memory_order_relaxed), 0))
        return NULL;
    log_ring *ring = log_ring_fast(&self->writer.rings);
    return __builtin_expect(ring && !ring->state, 1) ? ring : NULL;
}

/* The ring for a fast free, with room; NULL: take the slow path. */
static inline log_ring *logging_freeing_ring(logging *self)
{
    log_ring *ring = logging_fast_ring(self);
    return __builtin_expect(ring && ring->stored != ring->limit, 1) ? ring : NULL;
}

/* A successful allocation's line, without durations. */
static inline void log_fill_made(log_line *line, uint64_t stamp, const strata_block *block, size_t requested,
                                 CUstream stream, strata_tag tag, size_t alignment, uint32_t stream_id)
{
    line->stamp = stamp;
    line->stream = (uint64_t)(uintptr_t)stream;
    line->address = block->address;
    line->requested = requested;
    line->bytes = block->bytes;
    line->what = log_what(STRATA_LOG_ALLOCATE, STRATA_SUCCESS, 0, block->id.generation);
    line->where = log_where(tag, block->id.slot, STRATA_ACCESS_NONE, alignment);
    line->stream_alone = stream_id;
}

/* A free's line, but for its result. */
static inline void log_fill_free(log_line *line, uint64_t stamp, const strata_block *block, CUstream stream,
                                 uint64_t place, uint32_t stream_id)
{
    line->stamp = stamp;
    line->stream = (uint64_t)(uintptr_t)stream;
    line->address = block->address;
    line->requested = block->requested;
    line->bytes = block->bytes;
    line->where = place;
    line->stream_alone = stream_id;
}

#endif
