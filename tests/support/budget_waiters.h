/* What a budget with wait=live knows of the requests that wait in it. */
#ifndef STRATA_TESTS_SUPPORT_BUDGET_WAITERS_H
#define STRATA_TESTS_SUPPORT_BUDGET_WAITERS_H

#include "resources/budget/internal.h"

static inline size_t budget_waiters(budget *layer)
{
    size_t count = 0;
    strata_lock_take(&layer->waiters_lock);
    for (const budget_waiter *waiter = layer->waiters; waiter; waiter = waiter->next)
        count++;
    strata_lock_release(&layer->waiters_lock);
    return count;
}

/* Nanoseconds; moves on with each look for a deadlock. */
static inline uint64_t budget_next_look(budget *layer)
{
    strata_lock_take(&layer->waiters_lock);
    const uint64_t next = layer->next_look;
    strata_lock_release(&layer->waiters_lock);
    return next;
}

#endif
