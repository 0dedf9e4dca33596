/* Quotas of threads in a shared budget, for charges that no layer below decides (take.h): a thread charges and gives
 * back in its own line of the file, without a locked instruction.
 *
 *     limit >= leases + quotas granted        a quota that is open takes `granted` of the limit, a closed one `used`
 *
 * Any process with the file's lock closes a quota that is open, for what its thread does not use:
 *
 *     the thread, to charge                               to close
 *     used += bytes; light barrier                        open = CLOSED; heavy barrier for all processes
 *     load open: if used > open, undo: the slow path      granted = CLOSED: from now on `used` counts
 *
 * One of the two sees the other: either the thread undoes its charge, or what was charged is in `used`. So a closed
 * quota's `used` only falls, but for charges that are undone at once, and unused quota is never missed, also if the
 * thread sleeps, is stopped or was killed. A process that cannot ask for the barrier opens other processes' quotas
 * again.
 *
 * Giving back lowers `used` of the thread's quota, at any time, or the lease's while it is closed, whichever was
 * charged. So each alone may be below 0; their sum is what is in use.
 *
 * Quotas are granted within the peak, which no charge within one can raise then. When a charge to the lease may be a
 * new peak, the process closes its quotas, and waits for threads that are charging: then `used` is exact. So quotas are
 * granted only after many charges without one. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_QUOTA_H
#define STRATA_RESOURCES_BUDGET_SHARED_QUOTA_H

#include "core/base/busy_flag.h"
#include "resources/budget/shared_internal.h"

enum {
    SHARED_QUOTA_LOOKS = 64,    /* charges from one look at the other processes to the next */
    SHARED_QUOTA_MISSES = 1024, /* charges beyond the quota before there is another one */
};

static inline int64_t shared_quota_load(const _Atomic int64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Charges within the thread's quota; NULL: it has none. False: unchanged. Both comparisons are needed: by the first,
 * nothing is charged for a moment once the process has closed the quota; by the second, none that a closing process did
 * not see. */
static inline bool shared_quota_take(shared_quota *quota, uint64_t bytes)
{
    if (__builtin_expect(!quota || ++quota->steps % SHARED_QUOTA_LOOKS == 0, 0))
        return false;
    int64_t more;
    atomic_store_explicit(&quota->busy, 1, memory_order_relaxed);
    strata_light_barrier();
    const int64_t used = shared_quota_load(&quota->used);
    bool fits = !__builtin_add_overflow(used, bytes, &more) && more <= shared_quota_load(&quota->open);
    if (__builtin_expect(fits, 1)) {
        atomic_store_explicit(&quota->used, more, memory_order_relaxed);
        strata_light_barrier();
        fits = more <= shared_quota_load(&quota->open);
        if (__builtin_expect(!fits, 0))
            atomic_store_explicit(&quota->used, used, memory_order_relaxed);
    }
    strata_busy_leave(&quota->busy);
    return fits;
}

/* Gives bytes back to the thread's quota. False: it has none, or a closed one, whose charges go to the lease. */
static inline bool shared_quota_give(shared_quota *quota, uint64_t bytes)
{
    if (__builtin_expect(!quota || shared_quota_load(&quota->open) == SHARED_CLOSED, 0))
        return false;
    const uint64_t used = (uint64_t)shared_quota_load(&quota->used);
    atomic_store_explicit(&quota->used, (int64_t)(used - bytes), memory_order_release);
    return true;
}

/* The thread's, which gets one of its process's quotas, closed at first, and leaves it to the next thread with its
 * number. NULL: none is left. */
shared_quota *shared_quota_self(budget_shared *shared);

/* What the process's quotas, the closed ones too, add at most to its bytes of shared_count(). True: all were closed,
 * and that is what is charged to them. */
bool shared_quota_bound(const budget_shared *shared, int64_t *bytes);

/* Opens the thread's quota for `bytes` and more, if the process's bytes are then at most `peak`, its lease has as much
 * unused, and the kernel has a barrier for all processes. Takes the file's lock. */
bool shared_quota_open(budget_shared *shared, shared_quota *self, uint64_t bytes, int64_t peak);

/* Closes the process's quotas, and waits for charges within them. Takes the file's lock. False: it cannot be taken. */
bool shared_quota_close_own(budget_shared *shared);

/* ---- with the lock ---- */

/* Closes all quotas of a slot. Returns how much less it takes of the limit. */
uint64_t shared_quota_close(const budget_shared *shared, const shared_slot *slot);

/* Ends a slot's quotas. */
void shared_quota_clear(const budget_shared *shared, const shared_slot *slot);

/* What a slot's quotas take of the limit; what is charged to them. Without the lock too, at no one moment. False:
 * damaged. */
bool shared_quota_granted_to(const budget_shared *shared, const shared_slot *slot, int64_t *bytes);
bool shared_quota_used_by(const budget_shared *shared, const shared_slot *slot, int64_t *bytes);

#endif
