/* Locks, and their order.
 *
 * The one list of the process's locks is strata_lock_rank, outermost first: a thread may take a lock only while all
 * that it holds rank before it. Those of the allocator (core/base/arena.h) come behind all of them. Builds without
 * NDEBUG check that at each lock and stop at a violation, naming both. Three are not in the list, since nothing of it
 * is taken inside them: the log callback's (core/base/error.c), that of opening the driver (driver/driver.c), and that
 * of loading kernels (driver/kernels).
 *
 * Two kinds. strata_lock sleeps: for sections that several threads may well want at once. strata_spin spins and then
 * yields: for what one thread nearly always has to itself, a timeline or an owner's index. Taking it is one locked
 * instruction and releasing it a plain store, 8.6 ns a pair where a mutex is 17.7 (H200 host). The lock bit of a
 * block's entry is of the same kind, and a leaf: nothing is taken inside it.
 */
#ifndef STRATA_CORE_BASE_LOCK_H
#define STRATA_CORE_BASE_LOCK_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum strata_lock_rank {
    STRATA_RANK_SINGLETONS = 1, /* runtime: building the runtime of a device */
    STRATA_RANK_LEAK_REPORTS,   /* resources: layers that report leaks by themselves */
    STRATA_RANK_EXIT_LOOKS,     /* resources: guards that are looked at when the process exits; held while they are */
    STRATA_RANK_STREAMS,        /* runtime: the stream pool and what is registered */
    STRATA_RANK_ACCOUNTS,       /* resources: a budget's list of accounts */
    STRATA_RANK_ACCOUNT_LOCK,   /* resources: whether an account is locked; held for a moment */
    STRATA_RANK_SHARED_FILES,   /* resources: the process's shared budgets */
    STRATA_RANK_OWNER,          /* resources: what an owner makes when first needed */
    STRATA_RANK_POOL_OOM,       /* resources: a pool that waits for memory to become complete */
    STRATA_RANK_POOL_MAP,       /* resources: a pool that maps, moves or gives back memory */
    STRATA_RANK_DEVICES,        /* core: opening a device */
    STRATA_RANK_LAYERS,         /* core: names of layers */
    STRATA_RANK_STREAM_MAP,     /* core: known streams, and timelines coming and going */
    STRATA_RANK_TIMELINE,       /* core: one timeline; never two at once */
    STRATA_RANK_TAG_COUNTERS,   /* resources: scopes and reservations of statistics */
    STRATA_RANK_EVENTS,         /* core: free events of a device */
    STRATA_RANK_INDEX,          /* resources: an owner's addresses and its list of frees */
    STRATA_RANK_THREADS,        /* core: the list of threads, and tables coming and going */
    STRATA_RANK_TABLE,          /* core: free slots of one table of blocks */
    STRATA_RANK_COUNTERS,       /* core: making a counter's stripes */
    STRATA_RANK_SHARED,         /* resources: a shared budget's file, by one thread of the process */
    STRATA_RANK_CALL_STACKS,    /* core: entering a call stack */
    STRATA_RANK_FRAME_NAMES,    /* core: naming the frames of one */
    STRATA_RANK_LOG_LIST,       /* resources: the writers of logs */
    STRATA_RANK_LOG,            /* resources: what a writer and its flushers or readers share */
    STRATA_RANK_LOG_FILES,      /* resources: descriptors of logs that change */
    STRATA_RANK_TAGS,           /* core: names of tags */
    STRATA_RANK_SUSPECTS,       /* core: who can name the blocks of an illegal access; held while they do */
    STRATA_RANK_GUARD,          /* resources: the lists of a guard */
    STRATA_RANK_EXIT_FINDINGS,  /* resources: what guards found when the process exits */
    STRATA_RANK_STACK_ENDS,     /* core: whether a stack may end */
    STRATA_RANK_LEAF,           /* the lock bit of a block's entry */
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

/* Takes it if nobody has it, and says whether. */
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

/* Waits a little longer each time it is asked; gives the core away after a while. */
static inline void strata_backoff(unsigned *turn)
{
    if (++*turn < 64)
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

/* The same, and says whether another thread had it: for who can keep away from it for longer then. */
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
