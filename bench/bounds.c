/* What a pair cannot do without, in its simplest correct form, beside what Strata does: a bound for the targets of one
 * thread's pairs.
 *
 *     owner        a thread's list of free blocks of one size, under a busy flag; the block's facts, stored and, at the
 *                  free, compared; a generation, taken from one of several frees by compare-and-swap; two counters
 *     budget       the thread's quota under a busy flag, and the charge in the block's entry
 *     logging      a time stamp and a line of 64 bytes in the thread's ring for each call
 *     statistics   blocks by size, three totals, and live bytes and blocks with their highest value
 *
 * Each layer is called through a pointer. Left out: streams, uses of several streams, captures, other sizes, several
 * tags, refusals, and what the rare side needs of the frequent one but the flags. */
#include "bench.h"
#include "clock.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { BYTES = 4096, ENTRIES = 64, LINES = 4096, LINE_WORDS = 8, CALLS_IN_A_RING = 1400, LIVE = 1, FREED = 0 };

typedef struct entry {
    _Atomic uint64_t word; /* generation << 16 | state */
    _Atomic uint64_t address, bytes, requested, stream, origin, last_write;
    _Atomic uint64_t charge, origin_above; /* the layers' */
    struct entry *below;
} entry;

/* A thread's part of each layer. */
typedef struct thread_part {
    _Atomic uint32_t busy;
    entry *last;
    _Atomic int64_t live_bytes, live_blocks;
    _Atomic uint32_t budget_busy;
    _Atomic uint64_t quota;
    uint64_t stored;
    _Atomic uint64_t head;
    _Atomic uint64_t sizes[65], totals[3];
    _Atomic int64_t current[2], top[2], low[2], high[2];
    uint64_t lines[LINES][LINE_WORDS];
} thread_part;

typedef struct layer layer;
struct layer {
    bool (*take)(const layer *self, size_t bytes, CUstream stream, strata_block *out, entry **made);
    bool (*give)(const layer *self, const strata_block *block, entry *freed);
    const layer *below;
};

static _Thread_local thread_part *own;
static thread_part part;
static entry entries[ENTRIES];
static _Atomic bool excluded; /* by a thread that needs all threads' parts: never here */

static inline bool enter(_Atomic uint32_t *busy)
{
    atomic_store_explicit(busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return !atomic_load_explicit(&excluded, memory_order_acquire);
}

static inline void leave(_Atomic uint32_t *busy)
{
    atomic_store_explicit(busy, 0, memory_order_release);
}

static inline void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static inline uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void bump(_Atomic uint64_t *word, uint64_t by)
{
    store(word, load(word) + by);
}

static inline int64_t add(_Atomic int64_t *number, int64_t by)
{
    const int64_t now = atomic_load_explicit(number, memory_order_relaxed) + by;
    atomic_store_explicit(number, now, memory_order_relaxed);
    return now;
}

/* ---- the owner ---- */

static bool owner_take(const layer *self, size_t bytes, CUstream stream, strata_block *out, entry **made)
{
    (void)self;
    thread_part *local = own;
    if (!local || !enter(&local->busy))
        return false;
    entry *taken = *made = local->last;
    if (!taken || bytes > load(&taken->bytes))
        return false;
    local->last = taken->below;
    leave(&local->busy);
    const uint64_t generation = (load(&taken->word) >> 16) + 1;
    out->address = load(&taken->address);
    out->bytes = load(&taken->bytes);
    store(&taken->requested, out->requested = bytes);
    store(&taken->stream, (uintptr_t)(out->stream = stream));
    store(&taken->origin, out->tag = 0);
    store(&taken->last_write, generation);
    out->alignment = 512;
    out->device = 0;
    out->id = (strata_block_id){1, (uint32_t)(taken - entries), generation};
    atomic_store_explicit(&taken->word, generation << 16 | LIVE, memory_order_release);
    add(&local->live_bytes, (int64_t)out->bytes);
    add(&local->live_blocks, 1);
    return true;
}

static bool owner_give(const layer *self, const strata_block *block, entry *freed)
{
    (void)self;
    uint64_t word = block->id.generation << 16 | LIVE;
    const bool same = atomic_load_explicit(&freed->word, memory_order_acquire) == word && block->device == 0 &&
                      load(&freed->address) == block->address && load(&freed->bytes) == block->bytes &&
                      load(&freed->requested) == block->requested && load(&freed->stream) == (uintptr_t)block->stream;
    thread_part *local = own;
    if (!same || !local ||
        !atomic_compare_exchange_strong_explicit(&freed->word, &word, word | 2, memory_order_acq_rel,
                                                 memory_order_relaxed) ||
        !enter(&local->busy))
        return false;
    store(&freed->last_write, word);
    atomic_store_explicit(&freed->word, block->id.generation << 16 | FREED, memory_order_release);
    freed->below = local->last;
    local->last = freed;
    add(&local->live_bytes, -(int64_t)block->bytes);
    add(&local->live_blocks, -1);
    leave(&local->busy);
    return true;
}

/* ---- layers ---- */

static bool budget_take(const layer *self, size_t bytes, CUstream stream, strata_block *out, entry **made)
{
    thread_part *local = own;
    if (!local || !enter(&local->budget_busy))
        return false;
    const uint64_t quota = load(&local->quota);
    if (quota < bytes)
        return false;
    store(&local->quota, quota - bytes);
    leave(&local->budget_busy);
    if (!self->below->take(self->below, bytes, stream, out, made))
        return false;
    store(&(*made)->charge, bytes);
    return true;
}

static bool budget_give(const layer *self, const strata_block *block, entry *freed)
{
    thread_part *local = own;
    const uint64_t bytes = load(&freed->charge);
    if (!self->below->give(self->below, block, freed) || !enter(&local->budget_busy))
        return false;
    bump(&local->quota, bytes);
    leave(&local->budget_busy);
    return true;
}

static inline void write_line(thread_part *local, uint64_t kind, const strata_block *block)
{
    uint64_t *line = local->lines[local->stored++ % LINES];
#if defined(__x86_64__)
    line[0] = __rdtsc();
#else
    line[0] = bench_now();
#endif
    line[1] = (uintptr_t)block->stream;
    line[2] = block->address;
    line[3] = block->requested;
    line[4] = block->bytes;
    line[5] = block->id.generation << 16 | kind;
    line[6] = (uint64_t)block->tag << 32 | (uint64_t)block->id.slot << 8;
    line[7] = 1;
    atomic_store_explicit(&local->head, local->stored, memory_order_release);
}

static bool logging_take(const layer *self, size_t bytes, CUstream stream, strata_block *out, entry **made)
{
    if (!self->below->take(self->below, bytes, stream, out, made))
        return false;
    write_line(own, 1, out);
    return true;
}

static bool logging_give(const layer *self, const strata_block *block, entry *freed)
{
    write_line(own, 2, block);
    return self->below->give(self->below, block, freed);
}

static inline bool count_live(thread_part *local, unsigned which, int64_t by)
{
    const int64_t now = add(&local->current[which], by);
    if (now > atomic_load_explicit(&local->top[which], memory_order_relaxed))
        atomic_store_explicit(&local->top[which], now, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return now <= atomic_load_explicit(&local->high[which], memory_order_relaxed) &&
           now >= atomic_load_explicit(&local->low[which], memory_order_relaxed);
}

static bool statistics_take(const layer *self, size_t bytes, CUstream stream, strata_block *out, entry **made)
{
    if (!self->below->take(self->below, bytes, stream, out, made))
        return false;
    thread_part *local = own;
    store(&(*made)->origin_above, 1);
    bump(&local->sizes[64 - __builtin_clzll(out->bytes)], 1);
    bump(&local->totals[0], out->bytes);
    bump(&local->totals[1], bytes);
    bump(&local->totals[2], 1);
    return count_live(local, 0, (int64_t)out->bytes) && count_live(local, 1, 1);
}

static bool statistics_give(const layer *self, const strata_block *block, entry *freed)
{
    thread_part *local = own;
    if (!load(&freed->origin_above) ||
        !(count_live(local, 0, -(int64_t)load(&freed->bytes)) && count_live(local, 1, -1)))
        return false;
    return self->below->give(self->below, block, freed);
}

static const layer owner = {owner_take, owner_give, NULL}, statistics = {statistics_take, statistics_give, &owner},
                   logging = {logging_take, logging_give, &statistics}, budget = {budget_take, budget_give, &logging};

/* ---- rows ---- */

static __attribute__((noinline)) bool take(const layer *top, size_t bytes, CUstream stream, strata_block *out)
{
    entry *made;
    return top && out && bytes && top->take(top, bytes, stream, out, &made);
}

static __attribute__((noinline)) bool give(const layer *top, const strata_block *block)
{
    if (!top || !block || block->id.table != 1 || block->id.slot >= ENTRIES)
        return false;
    return top->give(top, block, &entries[block->id.slot]);
}

static void run_bound(void *state, size_t pairs)
{
    const layer *const volatile *top = state;
    for (size_t i = 0; i < pairs; i++) {
        strata_block block;
        if (!take(*top, BYTES, NULL, &block) || !give(*top, &block))
            bare_failed(CUDA_ERROR_UNKNOWN, "a bound's pair");
    }
}

typedef struct stack_pairs {
    strata_runtime *runtime;
    CUstream stream;
} stack_pairs;

static void run_stack(void *state, size_t pairs)
{
    const stack_pairs *self = state;
    for (size_t i = 0; i < pairs; i++) {
        strata_block block;
        scene_check(strata_runtime_allocate(self->runtime, BYTES, self->stream, &block), "strata_runtime_allocate");
        scene_check(strata_runtime_deallocate(self->runtime, &block), "strata_runtime_deallocate");
    }
}

/* Empties the rings between measurements, so that none fills up. */
static void collect(void *state)
{
    const stack_pairs *self = state;
    strata_resource *log = strata_stack_layer(strata_runtime_stack(self->runtime), "logging", 0);
    if (log)
        scene_check(strata_logging_flush(log), "strata_logging_flush");
}

static void reset(void)
{
    memset(&part, 0, sizeof part);
    own = &part;
    store(&part.quota, UINT64_C(1) << 36);
    for (unsigned i = 0; i < 2; i++) {
        atomic_store(&part.low[i], INT64_MIN / 2);
        atomic_store(&part.high[i], INT64_MAX / 2);
    }
    for (unsigned i = 0; i < ENTRIES; i++) {
        store(&entries[i].address, UINT64_C(1) << 40 | (uint64_t)i * BYTES);
        store(&entries[i].bytes, BYTES);
        entries[i].below = part.last;
        part.last = &entries[i];
    }
}

static void measure(const bench *self, const char *name, const char *text, const layer *top, bench_target target)
{
    stack_pairs pairs;
    const layer *bound = top;
    if (!bench_wants(self, name))
        return;
    reset();
    scene_check(
        strata_runtime_create(&(strata_runtime_config){.stack_text = text, .stream_capacity = 4}, &pairs.runtime),
        text);
    scene_check(strata_runtime_stream_acquire(pairs.runtime, &pairs.stream), "strata_runtime_stream_acquire");
    const bool quick = self->rounds < 5;
    const bench_plan plan = {
        .warm = 100, .batch = quick ? 200 : CALLS_IN_A_RING, .batches = quick ? 1 : 5, .quiet = !quick};
    bench_row(self, name, plan, (bench_side){run_bound, NULL, &bound}, (bench_side){run_stack, collect, &pairs},
              target);
    scene_check(strata_runtime_stream_release(pairs.runtime, pairs.stream), "strata_runtime_stream_release");
    scene_check(strata_runtime_destroy(pairs.runtime), "strata_runtime_destroy");
}

void bench_bounds(const bench *self)
{
    report_heading(self->report,
                   "A pair of 4 KiB, one thread; in place of the bare driver what a pair cannot do without", false);
    measure(self, "bound, pool", "pool", &owner, (bench_target){REPORT_TAKES_AT_MOST, 20});
    measure(self, "bound, statistics, pool", "statistics, pool", &statistics, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "bound, logging, statistics, pool", "logging(format=null), statistics, pool", &logging,
            (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "bound, budget, logging, statistics, pool", "budget, logging(format=null), statistics, pool", &budget,
            (bench_target){REPORT_TAKES_AT_MOST, 80});
}
