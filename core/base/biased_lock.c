/* The spin lock's half of a biased lock. */
#include "core/base/biased_lock.h"

/* The thread has taken the lock; whether that made a long row. Threads without a number are one thread here: let in, it
 * is none. */
static bool ends_row(strata_biased_lock *lock, uint32_t number)
{
    if (lock->last != number)
        lock->row = 0;
    lock->last = number;
    if (++lock->row < lock->long_row)
        return false;
    lock->row = 0;
    return true;
}

/* From now on the thread takes its flag alone; this time it has the spin lock. */
static void let_in(strata_biased_lock *lock, uint32_t number)
{
    strata_barriers_open();
    atomic_store_explicit(&lock->own, number, memory_order_release);
}

static void exclude(strata_biased_lock *lock, uint32_t own)
{
    atomic_store_explicit(&lock->own, STRATA_BIASED_LOCK_NONE, memory_order_seq_cst);
    strata_heavy_barrier();
    strata_busy_await(&lock->busy[own]);
    if (lock->long_row < STRATA_BIASED_LOCK_LAST_ROW)
        lock->long_row *= 2;
}

/* Any thread but the own one; and one that was it until it was excluded. */
void strata_biased_take_spin(strata_biased_lock *lock)
{
    const strata_thread *thread = strata_thread_current;
    const uint32_t number = thread ? thread->index : 0;
    strata_spin_take(&lock->spin);
    const uint32_t own = atomic_load_explicit(&lock->own, memory_order_relaxed);
    const bool is_row = ends_row(lock, number);
    if (own != STRATA_BIASED_LOCK_NONE)
        exclude(lock, own);
    else if (is_row && number)
        let_in(lock, number);
    lock->by = NULL;
}
