/* A count of references that its making thread, the owner, changes without a locked instruction.
 *
 * As in biased reference counting (Choi, Shull, Torrellas, PACT 2018), the owner has a part of the count to itself. The
 * number of references is the sum of two parts, until they are merged:
 *
 *     biased    clones of the owner, less what it released of them; only the owner writes it
 *     shared    the first reference and clones of other threads, less releases; above it BIAS, until the merge
 *
 *     clone     owner: biased + 1          others, or merged: shared + 1
 *     release   owner: biased - 1, or, if that is 0, shared - 1
 *               others: if the owner ever cloned, merge first, with the reference still in hand; then shared - 1
 *     merge     exclude the owner (a busy flag), shared + biased - BIAS; once for each count
 *
 * Unlike there, no queue leads back to the owner, which may have ended: the other thread merges at once, for one heavy
 * barrier, some microseconds.
 *
 * Which release is the last? The one that leaves 0 after the merge, or BIAS before it. The first is plain. For the
 * second, let the parts be unmerged and biased > 0, so that the owner has cloned. Call a thread stale if it is about to
 * release and read `cloned` before it could see the owner's first clone; every other one, not the owner, merges instead
 * of subtracting, and the owner subtracts from biased. So only stale threads lower shared. When biased became 1 the
 * owner had two references, the source and the clone, or one and a lender's, which is not stale: since then (references
 * not of stale threads) - biased >= 1, as clones, hand-overs and the owner's releases change both sides alike. Hence
 * shared - BIAS >= 1 + (references of stale threads): their releases do not reach BIAS. A release that does found
 * biased = 0, and no reference is left.
 *
 * During a merge the owner and other releasing threads wait for its end, and stale threads subtract, as above. */
#ifndef STRATA_RUNTIME_REFERENCE_COUNT_H
#define STRATA_RUNTIME_REFERENCE_COUNT_H

#include "core/base/busy_flag.h"
#include "core/base/thread.h"

#define STRATA_REFERENCE_BIAS (UINT64_C(1) << 62)

typedef struct strata_reference_count {
    uint64_t owner;          /* serial of the making thread; 0: none; constant */
    _Atomic uint64_t biased; /* written by the owner while it is busy, or by a merge that excludes it */
    _Atomic uint32_t busy;   /* written by the owner */
    _Atomic bool cloned;     /* the owner has cloned; written by the owner */
    _Atomic bool excluded;   /* a merge has begun; any thread, once */
    _Atomic bool merged;     /* written by the merging thread */
    _Atomic uint64_t shared; /* any thread */
} strata_reference_count;

/* Begins with one reference, the calling thread's. */
static inline void strata_reference_count_init(strata_reference_count *count)
{
    const strata_thread *thread = strata_thread_self();
    *count = (strata_reference_count){.owner = thread ? thread->serial : 0};
    atomic_init(&count->shared, thread ? STRATA_REFERENCE_BIAS + 1 : 1);
    atomic_init(&count->excluded, !thread);
    atomic_init(&count->merged, !thread);
}

static inline bool strata_reference_count_is_owner(const strata_reference_count *count)
{
    const strata_thread *thread = strata_thread_current;
    return thread && thread->serial == count->owner;
}

/* Merge merges, or waits until the merge of another thread is done. The caller has a reference, and is not busy. */
void strata_reference_count_merge(strata_reference_count *count);
void strata_reference_count_await_merge(const strata_reference_count *count);

/* Adds a reference. The caller has one, or borrows one. */
static inline void strata_reference_count_clone(strata_reference_count *count)
{
    if (strata_reference_count_is_owner(count)) {
        if (__builtin_expect(strata_busy_enter(&count->busy, &count->excluded), 1)) {
            const uint64_t biased = atomic_load_explicit(&count->biased, memory_order_relaxed);
            atomic_store_explicit(&count->biased, biased + 1, memory_order_relaxed);
            atomic_store_explicit(&count->cloned, true, memory_order_relaxed);
            strata_busy_leave(&count->busy);
            return;
        }
        strata_reference_count_await_merge(count);
    }
    atomic_fetch_add_explicit(&count->shared, 1, memory_order_relaxed);
}

/* Releases a reference. True: it was the last, and what is counted belongs to the caller alone. Else the count may be
 * gone on return. */
static inline bool strata_reference_count_release(strata_reference_count *count)
{
    if (strata_reference_count_is_owner(count)) {
        if (__builtin_expect(strata_busy_enter(&count->busy, &count->excluded), 1)) {
            const uint64_t biased = atomic_load_explicit(&count->biased, memory_order_relaxed);
            if (biased)
                atomic_store_explicit(&count->biased, biased - 1, memory_order_relaxed);
            strata_busy_leave(&count->busy);
            if (biased)
                return false;
        } else {
            strata_reference_count_await_merge(count);
        }
    } else if (!atomic_load_explicit(&count->merged, memory_order_acquire) &&
               atomic_load_explicit(&count->cloned, memory_order_acquire)) {
        strata_reference_count_merge(count);
    }
    const uint64_t left = atomic_fetch_sub_explicit(&count->shared, 1, memory_order_acq_rel) - 1;
    return left == 0 || left == STRATA_REFERENCE_BIAS;
}

#endif
