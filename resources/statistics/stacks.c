/* Counters by call stack, with `stacks=on`: an array of all call stacks' numbers, in chunks that are made as they are
 * needed. Each step is one atomic addition to words that all threads share, so that a stack's peak is exact. */
#include "core/base/host_memory.h"
#include "resources/statistics/internal.h"

enum { CHUNK = 1024 };

/* A call stack's numbers. Any thread, relaxed. */
struct strata_statistics_stack_counters {
    _Atomic int64_t bytes, bytes_peak, bytes_total;
    _Atomic int64_t blocks, blocks_peak, blocks_total;
    _Atomic int64_t requested;
    _Atomic strata_tag tag; /* of the latest allocation */
};

static strata_statistics_stack_counters *counters_of(strata_statistics *self, uint32_t call_stack)
{
    strata_statistics_stack_counters *chunk =
        atomic_load_explicit(&self->stacks[call_stack / CHUNK], memory_order_acquire);
    return chunk ? &chunk[call_stack % CHUNK] : NULL;
}

uint32_t strata_statistics_stack_open(strata_statistics *self, uint32_t call_stack)
{
    if (!call_stack || counters_of(self, call_stack))
        return call_stack;
    strata_statistics_stack_counters *before = NULL, *chunk = strata_host_zalloc(CHUNK * sizeof *chunk);
    if (!chunk)
        return 0;
    if (!atomic_compare_exchange_strong(&self->stacks[call_stack / CHUNK], &before, chunk))
        strata_host_free(chunk);
    return call_stack;
}

static void add(_Atomic int64_t *current, _Atomic int64_t *peak, int64_t amount)
{
    const int64_t now = atomic_fetch_add_explicit(current, amount, memory_order_relaxed) + amount;
    int64_t highest = atomic_load_explicit(peak, memory_order_relaxed);
    while (now > highest &&
           !atomic_compare_exchange_weak_explicit(peak, &highest, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

void strata_statistics_stack_live(strata_statistics *self, uint32_t call_stack, size_t bytes)
{
    strata_statistics_stack_counters *counters = counters_of(self, call_stack);
    add(&counters->bytes, &counters->bytes_peak, (int64_t)bytes);
    add(&counters->blocks, &counters->blocks_peak, 1);
}

void strata_statistics_stack_count(strata_statistics *self, uint32_t call_stack, strata_tag tag,
                                   const strata_block *made)
{
    strata_statistics_stack_counters *counters = counters_of(self, call_stack);
    atomic_store_explicit(&counters->tag, tag, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters->bytes_total, (int64_t)made->bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters->blocks_total, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters->requested, (int64_t)made->requested, memory_order_relaxed);
    strata_statistics_stack_live(self, call_stack, made->bytes);
}

void strata_statistics_stack_uncount(strata_statistics *self, uint32_t call_stack, size_t bytes)
{
    strata_statistics_stack_counters *counters = counters_of(self, call_stack);
    atomic_fetch_sub_explicit(&counters->bytes, (int64_t)bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&counters->blocks, 1, memory_order_relaxed);
}

/* ---- all of them ---- */

static int64_t read(const _Atomic int64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

void strata_statistics_each_stack(strata_statistics *self, strata_statistics_stack_visit *visit, void *data)
{
    for (uint32_t i = 1; i < STRATA_STATISTICS_STACK_CHUNKS * CHUNK; i++) {
        const strata_statistics_stack_counters *from = counters_of(self, i);
        if (!from)
            i |= CHUNK - 1;
        if (!from || !read(&from->blocks_total))
            continue;
        const strata_statistics_counters counters = {
            .bytes = {read(&from->bytes), read(&from->bytes_peak), read(&from->bytes_total)},
            .blocks = {read(&from->blocks), read(&from->blocks_peak), read(&from->blocks_total)},
            .requested = read(&from->requested),
        };
        visit(i, atomic_load_explicit(&from->tag, memory_order_relaxed), &counters, data);
    }
}

void strata_statistics_reset_stack_peaks(strata_statistics *self)
{
    for (uint32_t i = 1; i < STRATA_STATISTICS_STACK_CHUNKS * CHUNK; i++) {
        strata_statistics_stack_counters *counters = counters_of(self, i);
        if (!counters) {
            i |= CHUNK - 1;
            continue;
        }
        atomic_store_explicit(&counters->bytes_peak, read(&counters->bytes), memory_order_relaxed);
        atomic_store_explicit(&counters->blocks_peak, read(&counters->blocks), memory_order_relaxed);
    }
}

void strata_statistics_end_stacks(strata_statistics *self)
{
    for (size_t i = 0; i < STRATA_STATISTICS_STACK_CHUNKS; i++)
        strata_host_free(atomic_load(&self->stacks[i]));
}
