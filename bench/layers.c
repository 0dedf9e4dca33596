/* What layers add to an allocation and its free: `null` alone beside layers over `null`. Each thread has its own
 * stream; the figure is the mean time of a pair on a thread. */
#include "bench.h"
#include "clock.h"
#include "cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum {
    THREADS = 16,
    PAIR_BYTES = 4096,
    LINE_WORDS = 8,
    RING_LINES = 4096, /* a thread's ring, the layer's default */
    PAIR_ADDS = 100,   /* nanoseconds: limit for the production stack on one thread */
    QUICK_PAIRS = 200,
    PAIRS_IN_A_RING = 1400, /* three quarters of a ring wake the collector */
};

/* Pairs; the least cost of two log records, a time stamp and a cache line each; nops, which show what sharing a core
 * costs. */
typedef enum member_work {
    WORK_PAIRS,
    WORK_LINES,
    WORK_NOPS,
} member_work;

/* A stack and its threads. The first is the measuring thread. */
typedef struct stack_side stack_side;

typedef struct stack_member {
    stack_side *of;
    pthread_t thread;
    CUstream stream;
    uint64_t *lines;
    size_t next;
    uint64_t spent; /* nanoseconds; read after the run */
} stack_member;

struct stack_side {
    strata_runtime *runtime;
    pthread_barrier_t awake; /* all members, before each run */
    bool stop;               /* written before, read after `awake` */
    size_t pairs;            /* as `stop` */
    _Atomic size_t go;       /* the run that may begin; written by the measuring thread */
    _Atomic unsigned ended;
    unsigned count;
    member_work work;
    size_t lines; /* a member, for WORK_LINES; a power of two */
    stack_member members[THREADS];
};

static inline uint64_t stamp(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
#endif
}

static void run_lines(stack_member *self, size_t pairs)
{
    const size_t mask = self->of->lines - 1;
    size_t next = self->next; /* written by this member alone */
    for (size_t i = 0; i < 2 * pairs; i++) {
        volatile uint64_t *line = self->lines + (next++ & mask) * LINE_WORDS;
        uint64_t now = stamp();
        for (size_t word = 0; word < LINE_WORDS; word++)
            line[word] = now;
    }
    self->next = next;
}

static void run_pairs(const stack_member *self, size_t pairs)
{
    for (size_t i = 0; i < pairs; i++) {
        strata_block block;
        scene_check(strata_runtime_allocate(self->of->runtime, PAIR_BYTES, self->stream, &block),
                    "strata_runtime_allocate");
        scene_check(strata_runtime_deallocate(self->of->runtime, &block), "strata_runtime_deallocate");
    }
}

static void run_member(stack_member *self, size_t pairs)
{
    const uint64_t start = bench_now();
    if (self->of->work == WORK_PAIRS)
        run_pairs(self, pairs);
    else if (self->of->work == WORK_LINES)
        run_lines(self, pairs);
    else
        cores_run_nops(pairs);
    self->spent = bench_now() - start;
}

/* Yields at times, since threads may outnumber cores. */
static void pause_for(unsigned *spins)
{
    if (++*spins % 64 == 0)
        sched_yield();
}

static void *run_thread(void *state)
{
    stack_member *self = state;
    for (size_t run = 1;; run++) {
        pthread_barrier_wait(&self->of->awake);
        if (self->of->stop)
            return NULL;
        for (unsigned spins = 0; atomic_load_explicit(&self->of->go, memory_order_acquire) < run;)
            pause_for(&spins);
        run_member(self, self->of->pairs);
        atomic_fetch_add_explicit(&self->of->ended, 1, memory_order_release);
    }
}

/* Not timed: waking threads takes longer than a run. */
static void wake_side(void *state, size_t pairs)
{
    stack_side *self = state;
    self->pairs = pairs;
    atomic_store_explicit(&self->ended, 0, memory_order_relaxed);
    pthread_barrier_wait(&self->awake);
}

static void run_side(void *state, size_t pairs)
{
    stack_side *self = state;
    atomic_fetch_add_explicit(&self->go, 1, memory_order_release);
    run_member(&self->members[0], pairs);
    for (unsigned spins = 0; atomic_load_explicit(&self->ended, memory_order_acquire) < self->count - 1;)
        pause_for(&spins);
}

static double mean_spent(void *state)
{
    const stack_side *self = state;
    double sum = 0;
    for (unsigned i = 0; i < self->count; i++)
        sum += (double)self->members[i].spent;
    return sum / self->count;
}

/* Collects records between measurements, so that no ring fills up. */
static void collect_records(void *state)
{
    const stack_side *self = state;
    scene_check(strata_logging_flush(strata_stack_top(strata_runtime_stack(self->runtime))), "strata_logging_flush");
}

static void begin_side(stack_side *self, const char *text, unsigned count, member_work work, size_t lines)
{
    *self = (stack_side){.count = count, .work = work, .lines = lines};
    const strata_runtime_config config = {.stack_text = text, .stream_capacity = THREADS};
    scene_check(strata_runtime_create(&config, &self->runtime), text);
    int failed = pthread_barrier_init(&self->awake, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        stack_member *each = &self->members[i];
        each->of = self;
        each->lines = lines ? calloc(lines * LINE_WORDS, sizeof *each->lines) : NULL;
        if (lines && !each->lines)
            bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "calloc");
        scene_check(strata_runtime_stream_acquire(self->runtime, &each->stream), "strata_runtime_stream_acquire");
        if (i)
            failed |= pthread_create(&each->thread, NULL, run_thread, each);
    }
    if (failed)
        bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
}

static void end_side(stack_side *self)
{
    self->stop = true;
    pthread_barrier_wait(&self->awake);
    for (unsigned i = 0; i < self->count; i++) {
        if (i)
            pthread_join(self->members[i].thread, NULL);
        scene_check(strata_runtime_stream_release(self->runtime, self->members[i].stream),
                    "strata_runtime_stream_release");
        free(self->members[i].lines);
    }
    pthread_barrier_destroy(&self->awake);
    scene_check(strata_runtime_destroy(self->runtime), "strata_runtime_destroy");
}

static void report_cores(const bench *self)
{
    static char text[300];
    if (!cores_seen.count)
        return;
    snprintf(
        text, sizeof text,
        "Layers on one thread: on cores, of %d, that ran %d plain instructions in %.0f ns, the fastest seen, or up "
        "to 15 %% more; the slowest took %.0f. %zu rounds were measured again since their core had become slower.",
        cores_seen.count, CORES_NOPS, cores_seen.fastest_ns, cores_seen.slowest_ns, cores_seen.repeated);
    report_remark(self->report, text);
}

static void name_row(char name[REPORT_NAME_SIZE], const char *layers, unsigned count)
{
    snprintf(name, REPORT_NAME_SIZE, "layers, %s over null, %u thread%s", layers, count, count == 1 ? "" : "s");
}

static void measure(const bench *self, const char *layers, unsigned count, bench_target target)
{
    static stack_side alone, stacked;
    char name[REPORT_NAME_SIZE], text[256];
    name_row(name, layers, count);
    if (!bench_wants(self, name))
        return;
    snprintf(text, sizeof text, "%s, null", layers);
    begin_side(&alone, "null", count, WORK_PAIRS, 0);
    begin_side(&stacked, text, count, WORK_PAIRS, 0);
    /* The batch fits the ring. Records are collected with the clock stopped. */
    bool records = strstr(layers, "logging") != NULL;
    const bool quick = self->rounds < 5, large = strstr(layers, "ring=65536") != NULL;
    const size_t batch = quick ? QUICK_PAIRS : records && !large ? PAIRS_IN_A_RING : 20000;
    const bench_plan plan = {.warm = 100,
                             .batch = batch,
                             .batches = records && !quick ? 5 : 1,
                             .ready = wake_side,
                             .spent = mean_spent,
                             .quiet = count == 1 && !quick};
    bench_row(self, name, plan, (bench_side){run_side, NULL, &alone},
              (bench_side){run_side, records ? collect_records : NULL, &stacked}, target);
    end_side(&stacked);
    end_side(&alone);
}

/* Measures the least cost of logging a pair. */
static void measure_floor(const bench *self, unsigned count, size_t lines)
{
    static stack_side side;
    char name[REPORT_NAME_SIZE];
    snprintf(name, sizeof name, "layers, two stamps and two of %zu cache lines written, %u thread%s", lines, count,
             count == 1 ? "" : "s");
    if (!bench_wants(self, name))
        return;
    begin_side(&side, "null", count, WORK_LINES, lines);
    const bench_plan plan = {.warm = 100,
                             .batch = self->rounds < 5 ? QUICK_PAIRS : 20000,
                             .batches = 1,
                             .quiet = count == 1 && self->rounds >= 5,
                             .ready = wake_side,
                             .spent = mean_spent};
    bench_row(self, name, plan, (bench_side){0}, (bench_side){run_side, NULL, &side},
              (bench_target){REPORT_NO_TARGET, 0});
    end_side(&side);
}

static const char production[] = "budget(limit=64GiB), logging(format=null), statistics";
/* Rings exceed every cache. */
static const char production_large_rings[] = "budget(limit=64GiB), logging(format=null, ring=65536), statistics";

/* Measures the same instructions on one thread and on sixteen: slower where hardware threads share a core. */
static void measure_sharing(const bench *self)
{
    static stack_side alone, many;
    report_times row = {.kind = REPORT_NO_TARGET};
    snprintf(row.name, sizeof row.name, "layers, %d instructions that do nothing, 1 thread and %d", CORES_NOPS,
             THREADS);
    if (!bench_wants(self, row.name))
        return;
    begin_side(&alone, "null", 1, WORK_NOPS, 0);
    begin_side(&many, "null", THREADS, WORK_NOPS, 0);
    const bench_plan plan = {.warm = 100,
                             .batch = self->rounds < 5 ? QUICK_PAIRS : 20000,
                             .batches = 1,
                             .ready = wake_side,
                             .spent = mean_spent};
    const bench_side sides[] = {{run_side, NULL, &alone}, {run_side, NULL, &many}};
    double figures[2];
    bench_measure(self->rounds, plan, sides, 2, figures);
    row.bare = figures[0];
    row.strata = figures[1];
    report_add_times(self->report, &row);
    end_side(&many);
    end_side(&alone);
}

void bench_layers(const bench *self)
{
    static const char *const layers[] = {"budget(limit=64GiB)",
                                         "budget(limit=64GiB), budget(limit=64GiB)",
                                         "logging(format=null)",
                                         "statistics",
                                         "logging(format=null, duration=on)",
                                         "logging(format=null, enabled=off)",
                                         "guard(sample=1000)",
                                         "fixed(bytes=4KiB)",
                                         "binning(min=1KiB, max=4MiB)"};
    report_heading(self->report, "What layers add to an allocation and its free, beside the null resource alone",
                   false);
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        measure(self, layers[i], 1, (bench_target){REPORT_NO_TARGET, 0});
    measure_floor(self, 1, RING_LINES);
    measure(self, production, 1, (bench_target){REPORT_ADDS_AT_MOST, PAIR_ADDS});
    measure(self, "budget(limit=64GiB)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "logging(format=null)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure_floor(self, THREADS, RING_LINES);
    measure(self, "logging(format=null, enabled=off)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "statistics", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "guard(sample=1000)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "fixed(bytes=4KiB)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure_sharing(self);
    const bool cores = sysconf(_SC_NPROCESSORS_ONLN) >= THREADS;
    measure(self, production, THREADS, (bench_target){cores ? REPORT_ADDS_AT_MOST : REPORT_NO_TARGET, 1.5 * PAIR_ADDS});
    measure_floor(self, THREADS, 65536);
    measure(self, production_large_rings, THREADS, (bench_target){REPORT_NO_TARGET, 0});
    report_cores(self);
}
