/* Busy flags: a thread uses a slot of its own without a locked instruction, and rarely another thread uses all slots.
 *
 *     often, the slot's thread                          rarely, the excluding thread
 *     enter:  busy = 1; light barrier                   exclude:  excluded = true; heavy barrier
 *             load excluded: if true, busy = 0, fail    await:    load busy of each slot until it is 0
 *             ... use the slot ...                                ... use all slots ...
 *     leave:  busy = 0                                  readmit:  excluded = false
 *
 * Proof of exclusion. The barriers (core/base/asymmetric.h) make at least one thread see what the other stored before
 * its barrier. If the slot's thread sees excluded = true, it does not use the slot. If not, the excluding thread sees
 * busy = 1, or the 0 that leave stored since, and waits for this 0. Leave and readmit release and the loads acquire, so
 * each thread sees what the other did with the slot.
 *
 * This also holds for a slot created meanwhile, if slots are found with strata_per_thread_next. One thread excludes at
 * a time, under a lock of its client, and is in no slot itself: it would wait for itself. */
#ifndef STRATA_CORE_BASE_BUSY_FLAG_H
#define STRATA_CORE_BASE_BUSY_FLAG_H

#include "core/base/asymmetric.h"
#include "core/base/lock.h"

static inline void strata_busy_leave(_Atomic uint32_t *busy)
{
    atomic_store_explicit(busy, 0, memory_order_release);
    strata_lock_jitter();
}

/* The rest of enter, after a relaxed store of busy = 1 together with other data. */
static inline bool strata_busy_confirm(_Atomic uint32_t *busy, const _Atomic bool *excluded)
{
    strata_light_barrier();
    if (__builtin_expect(!atomic_load_explicit(excluded, memory_order_acquire), 1))
        return true;
    strata_busy_leave(busy);
    return false;
}

/* False, and not busy, while a thread excludes. */
static inline bool strata_busy_enter(_Atomic uint32_t *busy, const _Atomic bool *excluded)
{
    atomic_store_explicit(busy, 1, memory_order_relaxed);
    return strata_busy_confirm(busy, excluded);
}

/* For callers with a fallback: also fails where a full barrier would be needed. With NDEBUG it makes no call. */
static inline bool strata_busy_try_enter(_Atomic uint32_t *busy, const _Atomic bool *excluded)
{
    atomic_store_explicit(busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(!atomic_load_explicit(&strata_barriers_are_full, memory_order_relaxed) &&
                             !atomic_load_explicit(excluded, memory_order_acquire),
                         1))
        return true;
    strata_busy_leave(busy);
    return false;
}

/* Keeps threads out of their slots. Threads that are in one now: await them. */
static inline void strata_busy_exclude(_Atomic bool *excluded)
{
    atomic_store_explicit(excluded, true, memory_order_seq_cst);
    strata_heavy_barrier();
}

static inline void strata_busy_await(const _Atomic uint32_t *busy)
{
    for (unsigned spins = 0; atomic_load_explicit(busy, memory_order_acquire);)
        strata_backoff(&spins);
}

static inline void strata_busy_readmit(_Atomic bool *excluded)
{
    atomic_store_explicit(excluded, false, memory_order_release);
}

#endif
