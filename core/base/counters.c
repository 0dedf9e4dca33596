/* Creating, summing and freeing stripes. */
#include "core/base/counters.h"

#include "core/base/host_memory.h"
#include "core/base/lock.h"

static strata_lock creation_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_COUNTERS);

strata_stripe *strata_counters_make_stripe(strata_counters *counters, const strata_thread *thread)
{
    size_t which = thread->index / STRATA_COUNTERS_CHUNK;
    strata_lock_take(&creation_lock);
    strata_stripe *chunk = atomic_load_explicit(&counters->chunks[which], memory_order_relaxed);
    if (!chunk) {
        chunk = strata_host_zalloc_aligned(_Alignof(strata_stripe), STRATA_COUNTERS_CHUNK * sizeof *chunk);
        atomic_store_explicit(&counters->chunks[which], chunk, memory_order_release);
    }
    strata_lock_release(&creation_lock);
    return chunk ? &chunk[thread->index % STRATA_COUNTERS_CHUNK] : NULL;
}

int64_t strata_counters_sum(const strata_counters *counters, unsigned which)
{
    int64_t sum = atomic_load_explicit(&counters->shared.value[which], memory_order_acquire);
    for (size_t i = 0; i < STRATA_THREAD_LIMIT / STRATA_COUNTERS_CHUNK; i++) {
        const strata_stripe *chunk = atomic_load_explicit(&counters->chunks[i], memory_order_acquire);
        for (size_t j = 0; chunk && j < STRATA_COUNTERS_CHUNK; j++)
            sum += atomic_load_explicit(&chunk[j].value[which], memory_order_acquire);
    }
    return sum;
}

void strata_counters_destroy(strata_counters *counters)
{
    for (size_t i = 0; i < STRATA_THREAD_LIMIT / STRATA_COUNTERS_CHUNK; i++)
        strata_host_free(atomic_load_explicit(&counters->chunks[i], memory_order_relaxed));
}
