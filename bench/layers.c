/* What each layer adds to an allocation and its free, over an owner that does nothing: the left side is `null` alone,
 * the right one the same with layers above. One thread, and sixteen at a time, each on a stream of its own; there a row
 * is the wall time of one pair on every thread, which more cores than threads would leave as it is. */
#include "bench.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { THREADS = 16, PAIR_BYTES = 4096, LINE_WORDS = 8 };

/* One stack and its threads; the first runs on the thread that measures when there is one alone. */
typedef struct stack_side stack_side;

typedef struct stack_member {
    stack_side *of;
    pthread_t thread;
    CUstream stream;
    uint64_t *lines; /* of the floor; NULL: pairs on the stack */
    size_t next;
} stack_member;

struct stack_side {
    strata_runtime *runtime;
    pthread_barrier_t start, end; /* the members and the thread that measures */
    bool stop;                    /* written before `start` by the thread that measures, read after it */
    size_t pairs;                 /* the same */
    unsigned count;
    size_t lines; /* of the floor, for each member; a power of two */
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

/* The least that recording a pair can cost: for each of two records a stamp, and a cache line that is written whole. */
static void run_floor(stack_member *self, size_t pairs)
{
    for (size_t i = 0; i < 2 * pairs; i++) {
        volatile uint64_t *line = self->lines + (self->next++ & (self->of->lines - 1)) * LINE_WORDS;
        uint64_t now = stamp();
        for (size_t word = 0; word < LINE_WORDS; word++)
            line[word] = now;
    }
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
    if (self->lines)
        run_floor(self, pairs);
    else
        run_pairs(self, pairs);
}

static void *work(void *state)
{
    stack_member *self = state;
    for (;;) {
        pthread_barrier_wait(&self->of->start);
        if (self->of->stop)
            return NULL;
        run_member(self, self->of->pairs);
        pthread_barrier_wait(&self->of->end);
    }
}

static void run_side(void *state, size_t pairs)
{
    stack_side *self = state;
    if (self->count == 1) {
        run_member(&self->members[0], pairs);
        return;
    }
    self->pairs = pairs;
    pthread_barrier_wait(&self->start);
    pthread_barrier_wait(&self->end);
}

/* What the threads have recorded is collected between measurements: a ring that is full is another measurement. */
static void collect_records(void *state)
{
    const stack_side *self = state;
    scene_check(strata_logging_flush(strata_stack_top(strata_runtime_stack(self->runtime))), "strata_logging_flush");
}

static void begin_side(stack_side *self, const char *text, unsigned count, size_t lines)
{
    *self = (stack_side){.count = count, .lines = lines};
    const strata_runtime_config config = {.stack_text = text, .stream_capacity = THREADS};
    scene_check(strata_runtime_create(&config, &self->runtime), text);
    int failed = pthread_barrier_init(&self->start, NULL, count + 1);
    failed |= pthread_barrier_init(&self->end, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        stack_member *each = &self->members[i];
        each->of = self;
        each->lines = lines ? calloc(lines * LINE_WORDS, sizeof *each->lines) : NULL;
        if (lines && !each->lines)
            bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "calloc");
        scene_check(strata_runtime_stream_acquire(self->runtime, &each->stream), "strata_runtime_stream_acquire");
        if (count > 1)
            failed |= pthread_create(&each->thread, NULL, work, each);
    }
    if (failed)
        bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
}

static void end_side(stack_side *self)
{
    self->stop = true;
    if (self->count > 1)
        pthread_barrier_wait(&self->start);
    for (unsigned i = 0; i < self->count; i++) {
        if (self->count > 1)
            pthread_join(self->members[i].thread, NULL);
        scene_check(strata_runtime_stream_release(self->runtime, self->members[i].stream),
                    "strata_runtime_stream_release");
        free(self->members[i].lines);
    }
    pthread_barrier_destroy(&self->start);
    pthread_barrier_destroy(&self->end);
    scene_check(strata_runtime_destroy(self->runtime), "strata_runtime_destroy");
}

static void measure(const bench *self, const char *layers, unsigned count, bench_target target)
{
    static stack_side alone, stacked;
    char name[REPORT_NAME_SIZE], text[256];
    snprintf(name, sizeof name, "layers, %s over null, %u thread%s", layers, count, count == 1 ? "" : "s");
    if (!bench_wants(self, name))
        return;
    snprintf(text, sizeof text, "%s, null", layers);
    begin_side(&alone, "null", count, 0);
    begin_side(&stacked, text, count, 0);
    /* A pair makes two records: a batch has room in the ring, and is collected behind the clock's back. Several threads
     * run for longer, so that waking them does not count; their rings are larger. */
    bool records = strstr(layers, "logging") != NULL;
    bool quick = self->rounds < 5;
    const size_t alone_batch = records ? 500 : 20000, crowd_batch = quick ? 2000 : records ? 30000 : 60000;
    const bench_plan plan = {
        .warm = 500, .batch = count == 1 ? alone_batch : crowd_batch, .batches = records && count == 1 ? 5 : 1};
    bench_row(self, name, plan, (bench_side){run_side, NULL, &alone},
              (bench_side){run_side, records ? collect_records : NULL, &stacked}, target);
    end_side(&stacked);
    end_side(&alone);
}

/* What no logging of a pair can be cheaper than, in as many lines as the rows above have. */
static void measure_floor(const bench *self, unsigned count, size_t lines)
{
    static stack_side side;
    char name[REPORT_NAME_SIZE];
    snprintf(name, sizeof name, "layers, two stamps and two cache lines written, %u thread%s", count,
             count == 1 ? "" : "s");
    if (!bench_wants(self, name))
        return;
    begin_side(&side, "null", count, lines);
    const bench_plan plan = {.warm = 500, .batch = self->rounds < 5 ? 2000 : 30000, .batches = 1};
    bench_row(self, name, plan, (bench_side){0}, (bench_side){run_side, NULL, &side},
              (bench_target){REPORT_NO_TARGET, 0});
    end_side(&side);
}

/* The stack for production, as it comes when nobody names one. */
static const char production[] = "budget(limit=64GiB), logging(format=null), statistics";
static const char production_of_many[] = "budget(limit=64GiB), logging(format=null, ring=65536), statistics";

void bench_layers(const bench *self)
{
    static const char *const layers[] = {
        "budget(limit=64GiB)", "budget(limit=64GiB), budget(limit=64GiB)", "logging(format=null)",
        "statistics",          "logging(format=null, duration=on)",        "logging(format=null, enabled=off)",
        "guard(sample=1000)"};
    report_heading(self->report, "What layers add to an allocation and its free, beside the null resource alone",
                   false);
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        measure(self, layers[i], 1, (bench_target){REPORT_NO_TARGET, 0});
    measure_floor(self, 1, 1024);
    measure(self, production, 1, (bench_target){REPORT_ADDS_AT_MOST, 100});
    bool cores = sysconf(_SC_NPROCESSORS_ONLN) >= THREADS;
    measure(self, "budget(limit=64GiB)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "logging(format=null, ring=65536)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure_floor(self, THREADS, 65536);
    measure(self, "logging(format=null, enabled=off)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "statistics", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, "guard(sample=1000)", THREADS, (bench_target){REPORT_NO_TARGET, 0});
    measure(self, production_of_many, THREADS, (bench_target){cores ? REPORT_ADDS_AT_MOST : REPORT_NO_TARGET, 150});
}
