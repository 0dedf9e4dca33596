/* Blocks that are counted by their thread's account without a tag, and nowhere else: without a scope and a call stack.
 * For resources/fused. */
#ifndef STRATA_RESOURCES_STATISTICS_UNTAGGED_H
#define STRATA_RESOURCES_STATISTICS_UNTAGGED_H

#include "resources/statistics/internal.h"

/* A thread's account without a tag, if it counts in no other; else NULL. `counts`: its part, or NULL. */
static inline strata_tag_counters_account *strata_statistics_only_account(const strata_tag_counters_thread *counts)
{
    return __builtin_expect(counts && !counts->all, 1) ? counts->untagged : NULL;
}

/* Whether allocations are counted in no scope and by no call stack. */
static inline bool strata_statistics_counts_plainly(const strata_statistics *self)
{
    return !atomic_load_explicit(&self->detail, memory_order_relaxed);
}

static inline void strata_statistics_write_untagged(const strata_statistics *self, strata_entry *entry)
{
    atomic_store_explicit(&strata_statistics_facts_in(&self->resource, entry)->origin,
                          strata_statistics_origin(0, 0, 0), memory_order_release);
}

static inline bool strata_statistics_is_untagged(const strata_statistics *self, strata_entry *entry)
{
    return atomic_load_explicit(&strata_statistics_facts_in(&self->resource, entry)->origin, memory_order_acquire) ==
           strata_statistics_origin(0, 0, 0);
}

#endif
