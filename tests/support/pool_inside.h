/* Access to private members of the pool for its tests. */
#ifndef STRATA_TESTS_SUPPORT_POOL_INSIDE_H
#define STRATA_TESTS_SUPPORT_POOL_INSIDE_H

#include "core/stack/stack.h"
#include "resources/pool/internal.h"
#include "resources/pool/overhead.h"
#include "resources/pool/pending.h"
#include "resources/pool/thread_cache.h"

#include <strata/strata.h>

static inline pool *pool_inside(strata_runtime *runtime)
{
    return (pool *)strata_stack_layer(strata_runtime_stack(runtime), "pool", 0);
}

/* ---- remapping and the overhead that it earns ---- */

/* Adaptive overhead depends on the machine's speed, so tests of other subjects reset it. */
static inline void forget_remapping(strata_runtime *runtime)
{
    pool *self = pool_inside(runtime);
    self->adaptive.by_remapping = 0;
    self->adaptive.remap_window = (pool_remap_window){0};
}

/* Remapping is counted, and adds no overhead. */
static inline void earn_nothing(pool *self)
{
    self->given.overhead = true;
}

static inline double earned_by_remapping(const pool *self)
{
    return self->adaptive.by_remapping;
}

static inline void set_earned_by_polling(pool *self, double overhead)
{
    self->adaptive.by_polling = overhead;
}

static inline double given_overhead(const pool *self)
{
    return self->overhead;
}

static inline bool is_polling_costly(const pool *self)
{
    return atomic_load(&self->polling_is_costly);
}

static inline uint64_t window_bytes(const pool *self)
{
    return self->adaptive.remap_window.bytes;
}

static inline uint64_t window_remapping(const pool *self)
{
    return self->adaptive.remap_window.remapping;
}

static inline uint64_t window_began(const pool *self)
{
    return self->adaptive.remap_window.began;
}

static inline void restart_window(pool *self)
{
    const uint64_t now = pool_overhead_clock(self);
    self->adaptive.remap_window =
        (pool_remap_window){.began = now, .seen = now, .misses_seen = atomic_load(&self->counts.misses)};
}

/* A pause of so many nanoseconds, for the remap window. */
static inline void shift_window(pool *self, uint64_t nanoseconds)
{
    self->adaptive.remap_window.began -= nanoseconds;
    self->adaptive.remap_window.seen -= nanoseconds;
}

static inline void count_misses(pool *self, uint64_t count)
{
    atomic_fetch_add(&self->counts.misses, count);
}

static inline void count_remapped(pool *self, uint64_t count)
{
    atomic_fetch_add(&self->counts.chunks_remapped, count);
}

/* No later peak restarts the count. */
static inline void never_restart(pool *self)
{
    self->adaptive.risen_to = UINT64_MAX;
}

/* ---- sizes ---- */

static inline uint64_t peak_live(const pool *self)
{
    return self->peak_live;
}

static inline void set_peak_live(pool *self, uint64_t bytes)
{
    self->peak_live = bytes;
}

static inline uint64_t reserved_inside(const pool *self)
{
    return self->store.reserved;
}

static inline uint64_t device_total(const pool *self)
{
    return self->device->info.total_bytes;
}

static inline uint32_t chunk_numbers(const pool *self)
{
    return self->store.chunk_count;
}

static inline size_t count_stream_lists(const pool *self)
{
    size_t lists = 0;
    for (const pool_stream_list *list = self->heap.stream_lists; list; list = list->next)
        lists++;
    return lists;
}

#endif
