/* Long waits for spinning locks, the check of the lock order, for which each thread remembers the ranks it holds, and
 * jitter. */
#define _GNU_SOURCE
#include "core/base/lock.h"

#include "core/base/cancel.h"

#include <errno.h>
#include <time.h>

void strata_backoff_slow(unsigned spins)
{
    enum { YIELDS = 1000, SLEEP_NS = 20000 };
    if (spins < YIELDS) {
        sched_yield();
        return;
    }
    const int cancel = strata_cancel_forbid(); /* the caller may hold a lock */
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    strata_cancel_restore(cancel);
}

#ifndef NDEBUG
#include <stdio.h>
#include <stdlib.h>

/* ---- jitter ---- */

/* Each call site is paused at one of JITTER_FIRST calls at first, and of one more after each row of JITTER_ROW calls of
 * all threads: a site with a million calls costs a third of a second, and one with a hundred is met often. */
enum {
    JITTER_FIRST = 2,
    JITTER_ROW = 128,
    JITTER_SITES_LOG2 = 12,
    JITTER_SHORT_NS = 100000, /* the longest of half of the pauses; */
    JITTER_LONG_NS = 2000000, /* of a quarter; a quarter are yields */
};

static uint32_t jitter_seed;                                   /* 0: none; constant once the library is loaded */
static _Atomic uint32_t jitter_calls[1u << JITTER_SITES_LOG2]; /* of a site, or of several with one hash; as below */
static _Atomic uint32_t jitter_threads;                        /* any thread, relaxed: it must order nothing */
static _Thread_local uint32_t jitter_state;                    /* of xorshift32; 0: the thread has yet to begin */

static __attribute__((constructor)) void read_jitter_seed(void)
{
    const char *given = secure_getenv("STRATA_LOCK_JITTER");
    jitter_seed = given ? (uint32_t)strtoul(given, NULL, 10) : 0;
}

static uint32_t jitter_random(void)
{
    if (!jitter_state) {
        const uint32_t thread = 1 + atomic_fetch_add_explicit(&jitter_threads, 1, memory_order_relaxed);
        jitter_state = (jitter_seed * UINT32_C(0x9e3779b1)) ^ (thread * UINT32_C(0x85ebca6b));
        jitter_state |= !jitter_state;
    }
    jitter_state ^= jitter_state << 13;
    jitter_state ^= jitter_state >> 17;
    jitter_state ^= jitter_state << 5;
    return jitter_state;
}

static bool jitter_is_due(const void *site)
{
    const uint64_t hash = (uint64_t)(uintptr_t)site * UINT64_C(0x9e3779b97f4a7c15);
    _Atomic uint32_t *calls = &jitter_calls[hash >> (64 - JITTER_SITES_LOG2)];
    const uint32_t before = atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);
    return jitter_random() % (JITTER_FIRST + before / JITTER_ROW) == 0;
}

static void jitter_pause(uint32_t random)
{
    const uint32_t longest = random % 4 == 1 ? JITTER_LONG_NS : JITTER_SHORT_NS;
    if (random % 4 == 0) {
        sched_yield();
        return;
    }
    const int error = errno, cancel = strata_cancel_forbid(); /* a lock is no place to end a thread at */
    nanosleep(&(struct timespec){.tv_nsec = (long)(random / 4 % longest)}, NULL);
    strata_cancel_restore(cancel);
    errno = error;
}

static void jitter(const void *site)
{
    if (jitter_seed && jitter_is_due(site))
        jitter_pause(jitter_random());
}

void strata_lock_jitter(void)
{
    jitter(__builtin_return_address(0));
}

/* ---- order ---- */

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
    jitter(__builtin_return_address(0));
    enter(rank, rank);
}

void strata_lock_order_enter_beside(strata_lock_rank rank)
{
    jitter(__builtin_return_address(0));
    enter(rank, rank + 1U);
}

void strata_lock_order_leave(strata_lock_rank rank)
{
    held[rank]--;
    jitter(__builtin_return_address(0));
}
#endif
