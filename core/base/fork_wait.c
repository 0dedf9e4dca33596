/* A fork waits while another thread is in the middle of such work, and a thread that begins some waits while a fork is
 * under way. Both wait for a second at most: the fork may be a signal handler's, in such a thread, and handlers of the
 * program's may wait for one. Without a lock, since a child may inherit a lock as taken. */
#include "core/base/fork_wait.h"

#include "core/base/cancel.h"
#include "core/base/timestamp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

uint64_t strata_fork_patience = 1000000000;

static pthread_once_t watching = PTHREAD_ONCE_INIT;

/* The low half: threads in such work. The high half: the generation, one more in each child. A thread whose signal
 * handler forked goes on in the child, too, which does not count it: its work is of an older generation. Any thread. */
static _Atomic uint64_t holding;
static const uint64_t one_generation = (uint64_t)1 << 32;

static _Atomic unsigned forking;     /* threads that fork; any thread */
static _Thread_local bool forks_now; /* this one does: what its handlers do waits for no fork */

static bool any_holds(void)
{
    return (uint32_t)atomic_load(&holding) != 0;
}

/* False: it has waited since `begun` for long enough. */
static bool wait_a_little(uint64_t begun)
{
    const struct timespec time = {.tv_nsec = 50000};
    nanosleep(&time, NULL);
    return strata_timestamp_clock() - begun < strata_fork_patience;
}

static void before_fork(void)
{
    forks_now = true;
    atomic_fetch_add(&forking, 1);
    for (const uint64_t begun = strata_timestamp_clock(); any_holds() && wait_a_little(begun);)
        ;
}

/* In a child of a signal handler that interrupted before_fork the fork is not counted. */
static void after_fork(void)
{
    unsigned now = atomic_load(&forking);
    while (now && !atomic_compare_exchange_weak(&forking, &now, now - 1))
        ;
    forks_now = false;
}

static void begin_in_child(void)
{
    forks_now = false;
    atomic_store(&forking, 0);
    atomic_store(&holding, (atomic_load(&holding) / one_generation + 1) * one_generation);
}

static void watch(void)
{
    pthread_atfork(before_fork, after_fork, begin_in_child);
}

/* The generation of what it enters. */
static uint32_t enter(void)
{
    return (uint32_t)(atomic_fetch_add(&holding, 1) / one_generation);
}

static void leave(uint32_t generation)
{
    uint64_t now = atomic_load(&holding);
    while (now / one_generation == generation && !atomic_compare_exchange_weak(&holding, &now, now - 1))
        ;
}

strata_fork_hold strata_fork_hold_begin(void)
{
    const int cancel = strata_cancel_forbid();
    pthread_once(&watching, watch);
    uint32_t generation = enter();
    uint64_t begun = 0;
    for (bool waits = !forks_now; waits && atomic_load(&forking);) {
        leave(generation);
        begun = begun ? begun : strata_timestamp_clock();
        waits = wait_a_little(begun);
        generation = enter();
    }
    return (strata_fork_hold){generation, cancel};
}

void strata_fork_hold_end(strata_fork_hold hold)
{
    leave(hold.generation);
    strata_cancel_restore(hold.cancel);
}
