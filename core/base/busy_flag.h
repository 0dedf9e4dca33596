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

/* ---- gates ----
 *
 * Where slots' threads look if they also have a fast way in: it reads one word, makes no call, and needs a fallback. It
 * is closed while a thread excludes, and where light barriers must be full. If they must be from some moment on, it is
 * still open: the next exclusion closes it for good, and waits for the stores before light barriers. */

typedef struct strata_busy_gate {
    _Atomic bool excluded;
    _Atomic bool fast; /* that way is open; written by the excluding thread, like `excluded` */
} strata_busy_gate;

/* After strata_barriers_open. */
static inline void strata_busy_gate_init(strata_busy_gate *gate)
{
    atomic_init(&gate->excluded, false);
    atomic_init(&gate->fast, !atomic_load_explicit(&strata_barriers_are_full, memory_order_relaxed));
}

/* False, and not busy, if the fast way is closed: strata_busy_enter need not fail, too. With NDEBUG it makes no call.
 */
static inline bool strata_busy_try_enter(_Atomic uint32_t *busy, const strata_busy_gate *gate)
{
    atomic_store_explicit(busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&gate->fast, memory_order_acquire), 1))
        return true;
    strata_busy_leave(busy);
    return false;
}

/* As strata_busy_exclude. */
static inline void strata_busy_gate_close(strata_busy_gate *gate)
{
    const bool fast = atomic_exchange_explicit(&gate->fast, false, memory_order_seq_cst);
    atomic_store_explicit(&gate->excluded, true, memory_order_seq_cst);
    if (fast)
        strata_heavy_barrier_for_light();
    else
        strata_heavy_barrier();
}

static inline void strata_busy_gate_open(strata_busy_gate *gate)
{
    strata_busy_readmit(&gate->excluded);
    atomic_store_explicit(&gate->fast, !atomic_load_explicit(&strata_barriers_are_full, memory_order_relaxed),
                          memory_order_release);
}

#endif
