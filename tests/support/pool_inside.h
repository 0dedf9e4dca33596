/* Access to private members of the pool for its tests. */
#ifndef STRATA_TESTS_SUPPORT_POOL_INSIDE_H
#define STRATA_TESTS_SUPPORT_POOL_INSIDE_H

#include "core/stack/stack.h"
#include "resources/extents/pending.h"
#include "resources/pool/internal.h"
#include "resources/pool/thread_cache.h"

#include <strata/strata.h>

static inline pool *pool_inside(strata_runtime *runtime)
{
    return (pool *)strata_stack_layer(strata_runtime_stack(runtime), "pool", 0);
}

/* ---- the policy ---- */

/* Makes moves buy no overhead. */
static inline void earn_nothing(pool *self)
{
    self->policy.buys = 0;
}

/* As if streams were often asked for want of memory, which buys so many thousandths. */
static inline void set_polling_share(pool *self, uint64_t thousandths)
{
    self->policy.polling_share = thousandths;
}

/* Weighs polling after so many questions for want of memory in 1,024 requests that no cache served. */
static inline void weigh_questions(pool *self, uint64_t questions)
{
    strata_lock_take(&self->map_lock);
    atomic_store(&self->counts.misses, self->misses_weighed + 1024);
    self->polls_in_need = questions;
    pool_weigh_polling(self);
    strata_lock_release(&self->map_lock);
}

/* The overhead limit as a share of the peak, without what was bought. */
static inline double share_of_peak(strata_runtime *runtime)
{
    return pool_inside(runtime)->policy.share;
}

/* What pool.allowed would say after a look at a large request of no bytes. */
static inline uint64_t allowed_now(strata_runtime *runtime)
{
    pool *self = pool_inside(runtime);
    strata_lock_take(&self->map_lock);
    const uint64_t allowed = pool_allowed(self, &(pool_need){.side = POOL_LARGE, .budget_limit = UINT64_MAX});
    strata_lock_release(&self->map_lock);
    return allowed;
}

static inline bool is_polling_costly(const pool *self)
{
    return atomic_load(&self->polling_is_costly);
}

/* ---- sizes ---- */

static inline uint64_t peak_live(const pool *self)
{
    return self->policy.peak;
}

static inline void set_peak_live(pool *self, uint64_t bytes)
{
    self->policy.peak = bytes;
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
        lists += list->timeline != POOL_TIMELINE_NONE && list->timeline != POOL_TIMELINE_MULTI;
    return lists;
}

#endif
