/* The spin lock's half of a biased lock. */
#include "core/base/biased_lock.h"

/* The thread has taken the lock; whether that made a long row. Threads without a state are one thread here: let in, it
 * is none. */
static bool ends_row(strata_biased_lock *lock, uint64_t serial)
{
    if (lock->last != serial)
        lock->row = 0;
    lock->last = serial;
    if (++lock->row < lock->long_row)
        return false;
    lock->row = 0;
    return true;
}

/* Once it is no longer excluded, the own thread takes the flag alone; this time it has the spin lock. */
static void let_in(strata_biased_lock *lock, uint64_t serial)
{
    strata_barriers_open();
    atomic_store_explicit(&lock->own_thread, serial, memory_order_relaxed);
    strata_busy_readmit(&lock->excluded);
}

static void exclude(strata_biased_lock *lock)
{
    strata_busy_exclude(&lock->excluded);
    strata_busy_await(&lock->busy);
    if (lock->long_row < STRATA_BIASED_LOCK_LAST_ROW)
        lock->long_row *= 2;
}

void strata_biased_take_spin(strata_biased_lock *lock)
{
    const strata_thread *thread = strata_thread_current;
    const uint64_t serial = thread ? thread->serial : 0;
    strata_spin_take(&lock->spin);
    const uint64_t own_thread = atomic_load_explicit(&lock->own_thread, memory_order_relaxed);
    const bool is_row = ends_row(lock, serial);
    if (own_thread && own_thread != serial) {
        if (!atomic_load_explicit(&lock->excluded, memory_order_relaxed))
            exclude(lock);
    } else if (is_row) {
        let_in(lock, serial);
    }
    lock->by_flag = false;
}
