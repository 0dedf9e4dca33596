/* A spin lock for data that mostly one thread uses. It is biased to that thread, which takes it without a locked
 * instruction: one takes 5 ns, and lets nothing behind it begin before all stores before it are done.
 *
 *                       take                                         release
 *     its own thread    busy = 1; light barrier; load excluded       busy = 0
 *     (excluded)        busy = 0, then as any other thread
 *     another thread    the spin lock; if its own thread is not      the spin lock
 *                       excluded: excludes it, awaits busy = 0
 *
 * The own thread's way is a busy flag (busy_flag.h, with the proof), which is excluded under the spin lock. The first
 * thread that takes the lock many times in a row is its own for good: one that was excluded may have yet to see that,
 * and would write into the flag of the next one.
 *
 * An exclusion takes microseconds, and lasts: the own thread takes the spin lock, until it has done so many times in a
 * row, twice as many after each exclusion. A lock that threads take by turns is a spin lock. */
#ifndef STRATA_CORE_BASE_BIASED_LOCK_H
#define STRATA_CORE_BASE_BIASED_LOCK_H

#include "core/base/busy_flag.h"
#include "core/base/thread.h"

typedef struct strata_biased_lock {
    strata_spin spin;
    _Atomic uint64_t own_thread; /* its serial; 0: none yet; then constant. Written under the spin lock */
    _Atomic uint32_t busy;       /* written by the own thread */
    _Atomic bool excluded;       /* written under the spin lock */
    bool by_flag;                /* how the lock is held; guarded by the lock */
    /* Guarded by the spin lock. */
    uint64_t last;          /* the serial of the thread that took it last; 0: not known */
    uint32_t row, long_row; /* how often in a row so far; what counts as many */
} strata_biased_lock;

#define STRATA_BIASED_LOCK_INITIALIZER(which)                               \
    {                                                                       \
        .spin = {.rank = (which)}, .long_row = STRATA_BIASED_LOCK_FIRST_ROW \
    }
enum { STRATA_BIASED_LOCK_FIRST_ROW = 1024, STRATA_BIASED_LOCK_LAST_ROW = 1 << 20 };

/* As another thread than its own does. */
void strata_biased_take_spin(strata_biased_lock *lock);

/* False: the thread is not the lock's own, or is excluded. */
static inline bool strata_biased_enter(strata_biased_lock *lock)
{
    const strata_thread *thread = strata_thread_current;
    return thread && thread->serial == atomic_load_explicit(&lock->own_thread, memory_order_relaxed) &&
           strata_busy_enter(&lock->busy, &lock->excluded);
}

static inline void strata_biased_take(strata_biased_lock *lock)
{
    if (__builtin_expect(!strata_biased_enter(lock), 0)) {
        strata_biased_take_spin(lock);
        return;
    }
    strata_lock_order_enter(lock->spin.rank);
    lock->by_flag = true;
}

static inline void strata_biased_release(strata_biased_lock *lock)
{
    if (__builtin_expect(!lock->by_flag, 0)) {
        strata_spin_release(&lock->spin);
        return;
    }
    const strata_lock_rank rank = lock->spin.rank; /* see strata_lock_release */
    strata_busy_leave(&lock->busy);
    strata_lock_order_leave(rank);
}

#endif
