/* A spin lock for data that mostly one thread uses. It is biased to that thread, which takes it without a locked
 * instruction: one takes 5 ns, and lets nothing behind it begin before all stores before it are done.
 *
 *                       take                                            release
 *     its own thread    busy = 1; light barrier; load own: still it     busy = 0
 *     (not any more)    busy = 0, then as any other thread
 *     another thread    the spin lock; if there is an own thread:       the spin lock
 *                       own = none; heavy barrier; awaits its busy = 0
 *
 * The own thread's way is a busy flag (busy_flag.h, with the proof): own = none excludes it. Each thread has a flag of
 * its own in each lock, so that one that has yet to see that it was excluded writes into no other thread's. A flag goes
 * with the thread's number to a later thread.
 *
 * A thread that takes the lock many times in a row becomes its own. An exclusion takes microseconds: after each, a row
 * must be twice as long. A lock that threads take by turns is a spin lock. */
#ifndef STRATA_CORE_BASE_BIASED_LOCK_H
#define STRATA_CORE_BASE_BIASED_LOCK_H

#include "core/base/busy_flag.h"
#include "core/base/thread.h"

typedef struct strata_biased_lock {
    strata_spin spin;
    _Atomic uint32_t own; /* number of its own thread; STRATA_BIASED_LOCK_NONE. Written under the spin lock */
    _Atomic uint32_t *by; /* the flag that it is held by; NULL: the spin lock. Guarded by the lock */
    /* Guarded by the spin lock. */
    uint32_t last;          /* the number of the thread that took it last; 0: not known */
    uint32_t row, long_row; /* how often in a row so far; what counts as many */
    /* By thread number, each written by its thread while that is the own one; so it need not have a line to itself. */
    _Atomic uint32_t busy[STRATA_THREAD_LIMIT];
} strata_biased_lock;

#define STRATA_BIASED_LOCK_INITIALIZER(which)                                                               \
    {                                                                                                       \
        .spin = {.rank = (which)}, .own = STRATA_BIASED_LOCK_NONE, .long_row = STRATA_BIASED_LOCK_FIRST_ROW \
    }
enum {
    STRATA_BIASED_LOCK_NONE = STRATA_THREAD_LIMIT, /* no thread's number */
    STRATA_BIASED_LOCK_FIRST_ROW = 1024,
    STRATA_BIASED_LOCK_LAST_ROW = 1 << 20
};

/* As another thread than its own does. */
void strata_biased_take_spin(strata_biased_lock *lock);

/* Returns the thread's flag; NULL: the thread is not the lock's own. */
static inline _Atomic uint32_t *strata_biased_enter(strata_biased_lock *lock)
{
    const strata_thread *thread = strata_thread_current;
    const uint32_t own = atomic_load_explicit(&lock->own, memory_order_relaxed);
    if (!thread || thread->index != own)
        return NULL;
    _Atomic uint32_t *busy = &lock->busy[own];
    atomic_store_explicit(busy, 1, memory_order_relaxed);
    strata_light_barrier();
    if (__builtin_expect(atomic_load_explicit(&lock->own, memory_order_acquire) == own, 1))
        return busy;
    strata_busy_leave(busy);
    return NULL;
}

static inline void strata_biased_take(strata_biased_lock *lock)
{
    _Atomic uint32_t *busy = strata_biased_enter(lock);
    if (__builtin_expect(!busy, 0)) {
        strata_biased_take_spin(lock);
        return;
    }
    strata_lock_order_enter(lock->spin.rank);
    lock->by = busy;
}

static inline void strata_biased_release(strata_biased_lock *lock)
{
    _Atomic uint32_t *busy = lock->by;
    if (__builtin_expect(!busy, 0)) {
        strata_spin_release(&lock->spin);
        return;
    }
    const strata_lock_rank rank = lock->spin.rank; /* read before: the next thread that takes the lock may free it */
    strata_busy_leave(busy);
    strata_lock_order_leave(rank);
}

#endif
