/* Locks and their order.
 *
 * strata_lock_rank lists the process's locks, outermost first: a thread takes a lock only while all locks it holds rank
 * before it. The allocator's locks (core/base/arena.h) rank after all of them. Builds without NDEBUG check the order at
 * each lock and abort on a violation, naming both locks. Three locks are not listed, since no listed lock is taken
 * inside them: the log callback's (core/base/error.c), the driver's opening (driver/driver.c) and the loading of
 * kernels (driver/kernels).
 *
 * strata_lock sleeps: for sections that several threads enter at once. strata_spin spins, then yields: for data that
 * one thread nearly always has to itself, such as a timeline or an owner's index; a pair costs 8.6 ns, a mutex 17.7
 * (H200 host). The lock bit of a block's entry is a spin lock too, and a leaf. */
#ifndef STRATA_CORE_BASE_LOCK_H
#define STRATA_CORE_BASE_LOCK_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum strata_lock_rank {
    STRATA_RANK_SINGLETONS = 1,   /* runtime: building the runtime of a device */
    STRATA_RANK_LEAK_REPORTS,     /* resources: layers that report leaks by themselves */
    STRATA_RANK_EXIT_LOOKS,       /* resources: guards checked at process exit; held during the check */
    STRATA_RANK_STREAMS,          /* runtime: the stream pool and registered streams */
    STRATA_RANK_ACCOUNTS,         /* resources: a budget's list of accounts */
    STRATA_RANK_ACCOUNT_LOCK,     /* resources: whether an account is locked; held briefly */
    STRATA_RANK_SHARED_FILES,     /* resources: the process's shared budgets */
    STRATA_RANK_OWNER,            /* resources: what an owner creates on first use */
    STRATA_RANK_POOL_OOM,         /* resources: a pool that waits for memory to complete */
    STRATA_RANK_POOL_MAP,         /* resources: a pool that maps, moves or releases memory */
    STRATA_RANK_DEVICES,          /* core: opening a device */
    STRATA_RANK_LAYERS,           /* core: names of layers */
    STRATA_RANK_STREAM_MAP,       /* core: known streams; creation and removal of timelines */
    STRATA_RANK_TIMELINE,         /* core: one timeline; never two at once */
    STRATA_RANK_TAG_COUNTERS,     /* resources: scopes and reservations of statistics */
    STRATA_RANK_EVENTS,           /* core: free events of a device */
    STRATA_RANK_INDEX,            /* resources: an owner's addresses and its list of frees */
    STRATA_RANK_THREADS,          /* core: the list of threads; creation and removal of tables */
    STRATA_RANK_TABLE,            /* core: free slots of one table of blocks */
    STRATA_RANK_COUNTERS,         /* core: creating a counter's stripes */
    STRATA_RANK_SHARED,           /* resources: a shared budget's file, by one thread of the process */
    STRATA_RANK_CALL_STACKS,      /* core: inserting a call stack */
    STRATA_RANK_FRAME_NAMES,      /* core: naming its frames */
    STRATA_RANK_LOG_LIST,         /* resources: the writers of logs */
    STRATA_RANK_LOG,              /* resources: what a writer shares with its flushers or readers */
    STRATA_RANK_LOG_FILES,        /* resources: descriptors of logs that rotate */
    STRATA_RANK_TAGS,             /* core: names of tags */
    STRATA_RANK_FAULT_CANDIDATES, /* core: layers that name fault candidates; held while they are asked */
    STRATA_RANK_GUARD,            /* resources: the lists of a guard */
    STRATA_RANK_EXIT_FINDINGS,    /* resources: what guards found when the process exits */
    STRATA_RANK_STACK_ENDS,       /* core: whether a stack may be destroyed */
    STRATA_RANK_LEAF,             /* the lock bit of a block's entry */
    STRATA_RANK_COUNT
} strata_lock_rank;

typedef struct strata_lock {
    pthread_mutex_t mutex;
    strata_lock_rank rank;
} strata_lock;

#define STRATA_LOCK_INITIALIZER(which)     \
    {                                      \
        PTHREAD_MUTEX_INITIALIZER, (which) \
    }

typedef struct strata_spin {
    _Atomic uint32_t taken;
    strata_lock_rank rank;
} strata_spin;

#ifdef NDEBUG
static inline void strata_lock_order_enter(strata_lock_rank rank)
{
    (void)rank;
}
static inline void strata_lock_order_leave(strata_lock_rank rank)
{
    (void)rank;
}
#else
void strata_lock_order_enter(strata_lock_rank rank);
void strata_lock_order_leave(strata_lock_rank rank);
#endif

static inline void strata_lock_init(strata_lock *lock, strata_lock_rank rank)
{
    pthread_mutex_init(&lock->mutex, NULL);
    lock->rank = rank;
}

static inline void strata_lock_destroy(strata_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

static inline void strata_lock_take(strata_lock *lock)
{
    strata_lock_order_enter(lock->rank);
    pthread_mutex_lock(&lock->mutex);
}

/* Takes a free lock; false if it is taken. */
static inline bool strata_lock_try(strata_lock *lock)
{
    strata_lock_order_enter(lock->rank);
    const bool taken = pthread_mutex_trylock(&lock->mutex) == 0;
    if (!taken)
        strata_lock_order_leave(lock->rank);
    return taken;
}

static inline void strata_lock_release(strata_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
    strata_lock_order_leave(lock->rank);
}

static inline void strata_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Waits a little longer at each call; yields after a while. */
static inline void strata_backoff(unsigned *spins)
{
    if (++*spins < 64)
        strata_pause();
    else
        sched_yield();
}

static inline void strata_spin_init(strata_spin *spin, strata_lock_rank rank)
{
    atomic_init(&spin->taken, 0);
    spin->rank = rank;
}

static inline void strata_spin_take(strata_spin *spin)
{
    strata_lock_order_enter(spin->rank);
    unsigned spins = 0;
    while (atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire))
        while (atomic_load_explicit(&spin->taken, memory_order_relaxed))
            strata_backoff(&spins);
}

/* Takes the lock. True if another thread had it: the caller can then avoid it for longer. */
static inline bool strata_spin_take_meeting(strata_spin *spin)
{
    strata_lock_order_enter(spin->rank);
    if (!atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire))
        return false;
    unsigned spins = 0;
    do
        while (atomic_load_explicit(&spin->taken, memory_order_relaxed))
            strata_backoff(&spins);
    while (atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire));
    return true;
}

static inline void strata_spin_release(strata_spin *spin)
{
    atomic_store_explicit(&spin->taken, 0, memory_order_release);
    strata_lock_order_leave(spin->rank);
}

#endif
