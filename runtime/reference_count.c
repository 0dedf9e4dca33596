/* The rare side of a count of references: its two parts are merged. */
#include "runtime/reference_count.h"

void strata_reference_count_await_merge(const strata_reference_count *count)
{
    for (unsigned spins = 0; !atomic_load_explicit(&count->merged, memory_order_acquire);)
        strata_backoff(&spins);
}

void strata_reference_count_merge(strata_reference_count *count)
{
    if (atomic_exchange_explicit(&count->excluded, true, memory_order_seq_cst)) {
        strata_reference_count_await_merge(count);
        return;
    }
    strata_busy_exclude(&count->excluded);
    strata_busy_await(&count->busy);
    const uint64_t biased = atomic_load_explicit(&count->biased, memory_order_relaxed);
    atomic_fetch_add_explicit(&count->shared, biased - STRATA_REFERENCE_BIAS, memory_order_acq_rel);
    atomic_store_explicit(&count->merged, true, memory_order_release);
}
