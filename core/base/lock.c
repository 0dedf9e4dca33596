/* Long waits for spinning locks, and the check of the lock order: each thread remembers the ranks it holds. */
#include "core/base/lock.h"

#include <time.h>

void strata_backoff_slow(unsigned spins)
{
    enum { YIELDS = 1000, SLEEP_NS = 20000 };
    if (spins < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

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
#endif
