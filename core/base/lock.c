/* The check of the lock order: each thread remembers the ranks it holds. */
#include "core/base/lock.h"

#ifndef NDEBUG
#include <stdio.h>
#include <stdlib.h>

static _Thread_local uint8_t held[STRATA_RANK_COUNT];

static void enter(strata_lock_rank rank, unsigned first)
{
    for (unsigned other = first; other < STRATA_RANK_COUNT; other++) {
        if (!held[other])
            continue;
        fprintf(stderr, "strata: lock of rank %d taken while one of rank %u is held\n", (int)rank, other);
        abort();
    }
    held[rank]++;
}

void strata_lock_order_enter(strata_lock_rank rank)
{
    enter(rank, rank);
}

void strata_lock_order_enter_beside(strata_lock_rank rank)
{
    enter(rank, rank + 1U);
}

void strata_lock_order_leave(strata_lock_rank rank)
{
    held[rank]--;
}
#else
typedef int strata_lock_order_is_checked_without_ndebug;
#endif
