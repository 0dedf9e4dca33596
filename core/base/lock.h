/* Locks and their order.
 *
 * strata_lock_rank lists the process's locks, outermost first: a thread takes a lock only while all locks it holds rank
 * before it. Builds without NDEBUG abort on a violation, naming both ranks. The allocator's locks (core/base/arena.h)
 * rank last. Three locks have no rank, since no ranked lock is taken inside them: the log callback's
 * (core/base/error.c), the driver's opening (driver/driver.c) and the loading of kernels (driver/kernels).
 *
 * strata_lock sleeps. strata_spin spins, then yields, then sleeps for moments: for data that one thread nearly always
 * has to itself, such as a timeline or an owner's index. A pair costs 8.6 ns, a mutex 17.7 (H200 host).
 *
 * Jitter. With STRATA_LOCK_JITTER=SEED in the environment, a number from 1, threads of a build without NDEBUG now and
 * then yield or sleep, for 2 ms at most, before they take a lock, after they have released one, and where
 * strata_lock_jitter is called. So other threads get in at moments that else last nanoseconds, such as between a
 * release and the read of a record that was listed under the lock: another thread may have freed it by then. The seed
 * and the order in which threads begin choose the pauses; they become rarer the more locks a thread has taken. */
#ifndef STRATA_CORE_BASE_LOCK_H
#define STRATA_CORE_BASE_LOCK_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum strata_lock_rank {
    STRATA_RANK_SERVICE = 1,      /* the phase of a device service, and its snapshot; held for moments */
    STRATA_RANK_SERVICE_GRAPH,    /* what is recorded in a graph of requests, until its end is in the queue */
    STRATA_RANK_SERVICE_TIMER,    /* time limits of a service's requests */
    STRATA_RANK_SERVICE_WORKER,   /* what a service and its worker share with other threads; held for moments */
    STRATA_RANK_SERVICE_MAILBOX,  /* requests that the service's thread has not taken */
    STRATA_RANK_SERVICE_NAMES,    /* names in error records of workers */
    STRATA_RANK_SERVICE_WAITER,   /* requests that its waiting thread has yet to see complete */
    STRATA_RANK_CAPTURE_INTO,     /* captures of functions in global mode; held while they run */
    STRATA_RANK_WATCHES,          /* changes and watches of generations; held during their callbacks */
    STRATA_RANK_SINGLETONS,       /* building the runtime of a device */
    STRATA_RANK_LEAK_REPORTS,     /* layers that report leaks by themselves */
    STRATA_RANK_EXIT_LOOKS,       /* guards checked at process exit; held during the check */
    STRATA_RANK_ACTIVE_POOL,      /* the device's current pool, while a capture pool is active */
    STRATA_RANK_GRAPHED_CALLS,    /* calls of one function that is a graph */
    STRATA_RANK_BLAS,             /* one cuBLAS handle; held from a call's waits to its record */
    STRATA_RANK_GRAPH_LAUNCHES,   /* launches of graphs that share memory; held from the wait to the record */
    STRATA_RANK_CAPTURES,         /* a runtime's captures, their pools, and the blocks that graphs keep */
    STRATA_RANK_CAPTURE_LIST,     /* the process's captures */
    STRATA_RANK_PINNED_POOL,      /* the buffers of a pinned pool; nothing is called under it */
    STRATA_RANK_STREAMS,          /* the runtime's stream pool and registered streams */
    STRATA_RANK_OPEN_USES,        /* a runtime's uses until a free; nothing is called under it */
    STRATA_RANK_IDLE_STREAMS,     /* a runtime's internal streams without work, and frees to come; likewise */
    STRATA_RANK_ACCOUNTS,         /* a budget's list of accounts */
    STRATA_RANK_BUDGET_WAITERS,   /* requests that wait for live bytes */
    STRATA_RANK_ACCOUNT_LOCK,     /* whether an account is locked; held briefly */
    STRATA_RANK_SHARED_FILES,     /* the process's shared budgets */
    STRATA_RANK_OWNER,            /* what an owner creates on first use */
    STRATA_RANK_STACKS,           /* the process's stacks; held for moments */
    STRATA_RANK_POOL_OOM,         /* a pool that waits for memory to complete */
    STRATA_RANK_POOL_MAP,         /* a pool that maps, moves or releases memory */
    STRATA_RANK_PINNED_GROW,      /* a pinned resource that takes a slab */
    STRATA_RANK_DEVICES,          /* opening a device */
    STRATA_RANK_LAYERS,           /* names of layers */
    STRATA_RANK_STREAM_MAP,       /* known streams; creation and removal of timelines */
    STRATA_RANK_TIMELINE,         /* one timeline; never two at once */
    STRATA_RANK_THREAD_SCOPES,    /* scopes of statistics that threads enter */
    STRATA_RANK_TAG_RECORDS,      /* records and scopes of statistics that are made */
    STRATA_RANK_TAG_COUNTERS,     /* scopes and reservations of statistics */
    STRATA_RANK_EVENTS,           /* free events of a device */
    STRATA_RANK_INDEX,            /* an owner's addresses and its list of frees */
    STRATA_RANK_THREADS,          /* the list of threads; creation and removal of tables */
    STRATA_RANK_TABLE,            /* free slots of one table of blocks */
    STRATA_RANK_COUNTERS,         /* creating stripes of counters, per-thread slots */
    STRATA_RANK_SHARED,           /* a shared budget's file, by one thread of the process */
    STRATA_RANK_SHARED_RETIRED,   /* the open records of a shared budget's frees */
    STRATA_RANK_CALL_STACKS,      /* inserting a call stack */
    STRATA_RANK_FRAME_NAMES,      /* naming its frames */
    STRATA_RANK_LOG_LIST,         /* the writers of logs */
    STRATA_RANK_LOG,              /* what a writer shares with its flushers or readers */
    STRATA_RANK_LOG_FILES,        /* descriptors of logs that rotate */
    STRATA_RANK_TAGS,             /* names of tags */
    STRATA_RANK_FAULT_CANDIDATES, /* layers that name fault candidates; held while they are called */
    STRATA_RANK_GUARD,            /* the lists of a guard */
    STRATA_RANK_EXIT_FINDINGS,    /* what guards found at process exit */
    STRATA_RANK_STACK_ENDS,       /* whether a stack may be destroyed */
    STRATA_RANK_ACCOUNT_COUNTS,   /* what is in use in an account at once */
    STRATA_RANK_LIBRARIES,        /* the handles of a set of libraries; held for moments */
    STRATA_RANK_LIBRARY_KINDS,    /* the kinds of libraries; held for moments */
    STRATA_RANK_ONNX_BINDING,     /* the runtime that ONNX Runtime's functions are bound to; held for moments */
    STRATA_RANK_CHUNKS,           /* chunks that cuMemAlloc made; held for moments */
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
static inline void strata_lock_order_enter_beside(strata_lock_rank rank)
{
    (void)rank;
}
static inline void strata_lock_order_leave(strata_lock_rank rank)
{
    (void)rank;
}
static inline void strata_lock_jitter(void)
{
}
#else
void strata_lock_order_enter(strata_lock_rank rank);
void strata_lock_order_enter_beside(strata_lock_rank rank);
void strata_lock_order_leave(strata_lock_rank rank);
void strata_lock_jitter(void); /* also where something is published, or a thread woken, without a lock */
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

static inline bool strata_lock_try(strata_lock *lock)
{
    strata_lock_order_enter(lock->rank);
    const bool taken = pthread_mutex_trylock(&lock->mutex) == 0;
    if (!taken)
        strata_lock_order_leave(lock->rank);
    return taken;
}

/* Tries a lock that may have the rank of one that is held: there is no wait, so locks of one rank need no order. */
static inline bool strata_lock_try_beside(strata_lock *lock)
{
    strata_lock_order_enter_beside(lock->rank);
    const bool taken = pthread_mutex_trylock(&lock->mutex) == 0;
    if (!taken)
        strata_lock_order_leave(lock->rank);
    return taken;
}

static inline void strata_lock_release(strata_lock *lock)
{
    const strata_lock_rank rank = lock->rank; /* read before: the next thread that takes the lock may free it */
    pthread_mutex_unlock(&lock->mutex);
    strata_lock_order_leave(rank);
}

static inline void strata_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Yields, and after a thousand times sleeps: what is waited for may need this processor, or take long. */
void strata_backoff_slow(unsigned spins);

static inline void strata_backoff(unsigned *spins)
{
    if (++*spins < 64)
        strata_pause();
    else
        strata_backoff_slow(*spins);
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

static inline void strata_spin_release(strata_spin *spin)
{
    const strata_lock_rank rank = spin->rank; /* see strata_lock_release */
    atomic_store_explicit(&spin->taken, 0, memory_order_release);
    strata_lock_order_leave(rank);
}

#endif
