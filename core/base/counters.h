/* Counters without sharing: a thread adds to its own stripe, a reader sums the stripes. */
#ifndef STRATA_CORE_BASE_COUNTERS_H
#define STRATA_CORE_BASE_COUNTERS_H

#include "core/base/thread.h"

#include <stdatomic.h>

enum {
    STRATA_COUNTERS_WIDTH = 8, /* counters of a stripe: one cache line */
    STRATA_COUNTERS_CHUNK = 64,
};

/* Written by the thread with its number, read by any. A sum is no snapshot, but a reader that has seen an addition sees
 * everything before it: of two totals, read first the one that is never the larger. When a thread ends, the next thread
 * with its number gets the stripe. */
typedef struct strata_stripe {
    _Alignas(64) _Atomic int64_t value[STRATA_COUNTERS_WIDTH];
} strata_stripe;

typedef struct strata_counters {
    _Atomic(strata_stripe *) chunks[STRATA_THREAD_LIMIT / STRATA_COUNTERS_CHUNK]; /* created on demand, never moved */
    strata_stripe shared; /* for threads without a stripe: atomic additions */
} strata_counters;

strata_stripe *strata_counters_make_stripe(strata_counters *counters, const strata_thread *thread);

/* NULL: use the shared stripe. */
static inline strata_stripe *strata_counters_self(strata_counters *counters, const strata_thread *thread)
{
    if (__builtin_expect(!thread || !thread->index, 0))
        return NULL;
    strata_stripe *chunk =
        atomic_load_explicit(&counters->chunks[thread->index / STRATA_COUNTERS_CHUNK], memory_order_acquire);
    return __builtin_expect(chunk != NULL, 1) ? &chunk[thread->index % STRATA_COUNTERS_CHUNK]
                                              : strata_counters_make_stripe(counters, thread);
}

/* `mine`: from strata_counters_self. Returns the stripe's new value. */
static inline int64_t strata_counters_add_to(strata_counters *counters, strata_stripe *mine, unsigned which,
                                             int64_t delta)
{
    if (__builtin_expect(!mine, 0))
        return atomic_fetch_add_explicit(&counters->shared.value[which], delta, memory_order_release) + delta;
    int64_t value = atomic_load_explicit(&mine->value[which], memory_order_relaxed) + delta;
    atomic_store_explicit(&mine->value[which], value, memory_order_release);
    return value;
}

static inline void strata_counters_add(strata_counters *counters, const strata_thread *thread, unsigned which,
                                       int64_t delta)
{
    strata_counters_add_to(counters, strata_counters_self(counters, thread), which, delta);
}

/* Exact while no thread adds. */
int64_t strata_counters_sum(const strata_counters *counters, unsigned which);

/* more - less, 0 if negative. `less` is the total that was read first. */
static inline size_t strata_counters_between(int64_t less, int64_t more)
{
    return more > less ? (size_t)(more - less) : 0;
}

void strata_counters_destroy(strata_counters *counters);

#endif
