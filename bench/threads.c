/* Pairs on several threads, each with its own stream. An operation is a pair on every thread. Its time is divided by
 * the threads, so perfect scaling divides the figure by their number. */
#include "bench.h"

#include <pthread.h>

enum { THREADS = 16, PAIR_BYTES = 4096 };

typedef struct member_team member_team;

typedef struct member {
    member_team *of;
    pthread_t thread;
    CUstream bare_stream, known_stream;
} member;

struct member_team {
    const bench *run;
    CUmemoryPool pool;
    pthread_barrier_t start, end; /* members and measuring thread */
    bool strata, stop;            /* written before `start` by the measuring thread, read after it */
    size_t pairs;                 /* as `stop` */
    unsigned count;
    member members[THREADS];
};

static void run_bare_pairs(const member *self)
{
    for (size_t i = 0; i < self->of->pairs; i++) {
        CUdeviceptr address;
        bare_check(bare.MemAllocFromPoolAsync(&address, PAIR_BYTES, self->of->pool, self->bare_stream),
                   "cuMemAllocFromPoolAsync");
        bare_check(bare.MemFreeAsync(address, self->bare_stream), "cuMemFreeAsync");
    }
}

static void run_strata_pairs(const member *self)
{
    strata_runtime *runtime = self->of->run->late;
    for (size_t i = 0; i < self->of->pairs; i++) {
        strata_block block;
        scene_check(strata_runtime_allocate(runtime, PAIR_BYTES, self->known_stream, &block),
                    "strata_runtime_allocate");
        scene_check(strata_runtime_deallocate(runtime, &block), "strata_runtime_deallocate");
    }
}

static void *work(void *state)
{
    const member *self = state;
    member_team *of = self->of;
    bare_check(bare.CtxSetCurrent(of->run->context), "cuCtxSetCurrent");
    for (;;) {
        pthread_barrier_wait(&of->start);
        if (of->stop)
            return NULL;
        if (of->strata)
            run_strata_pairs(self);
        else
            run_bare_pairs(self);
        pthread_barrier_wait(&of->end);
    }
}

static void run_all(member_team *self, bool strata, size_t pairs)
{
    self->strata = strata;
    self->pairs = pairs;
    pthread_barrier_wait(&self->start);
    pthread_barrier_wait(&self->end);
}

static void run_bare(void *state, size_t pairs)
{
    run_all(state, false, pairs);
}

static void run_strata(void *state, size_t pairs)
{
    run_all(state, true, pairs);
}

static void drain(void *state)
{
    const member_team *self = state;
    for (unsigned i = 0; i < self->count; i++) {
        bare_check(bare.StreamSynchronize(self->members[i].bare_stream), "cuStreamSynchronize");
        bare_check(bare.StreamSynchronize(self->members[i].known_stream), "cuStreamSynchronize");
    }
}

static void start(member_team *self, const bench *run, CUmemoryPool pool, unsigned count)
{
    *self = (member_team){.run = run, .pool = pool, .count = count};
    int failed = pthread_barrier_init(&self->start, NULL, count + 1);
    failed |= pthread_barrier_init(&self->end, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        member *each = &self->members[i];
        each->of = self;
        bare_check(bare.StreamCreate(&each->bare_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        scene_check(strata_runtime_stream_acquire(run->late, &each->known_stream), "strata_runtime_stream_acquire");
        failed |= pthread_create(&each->thread, NULL, work, each);
    }
    if (failed)
        bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
}

static void end(member_team *self)
{
    self->stop = true;
    pthread_barrier_wait(&self->start);
    for (unsigned i = 0; i < self->count; i++) {
        pthread_join(self->members[i].thread, NULL);
        bare_check(bare.StreamDestroy(self->members[i].bare_stream), "cuStreamDestroy");
        scene_check(strata_runtime_stream_release(self->run->late, self->members[i].known_stream),
                    "strata_runtime_stream_release");
    }
    pthread_barrier_destroy(&self->start);
    pthread_barrier_destroy(&self->end);
}

static void measure(const bench *self, CUmemoryPool pool, unsigned count)
{
    report_times row = {.kind = REPORT_NO_TARGET};
    snprintf(row.name, sizeof row.name, "threads, async pairs of 4 KiB, %u thread%s, wall time per pair", count,
             count == 1 ? "" : "s");
    if (!bench_wants(self, row.name))
        return;
    static member_team all;
    start(&all, self, pool, count);
    const bench_side sides[] = {{run_bare, drain, &all}, {run_strata, drain, &all}};
    double figures[2];
    bench_measure(self->rounds, (bench_plan){.batch = count == 1 ? 2000 : 500, .batches = 1}, sides, 2, figures);
    end(&all);
    row.bare = figures[0] / count;
    row.strata = figures[1] / count;
    report_add_times(self->report, &row);
}

void bench_threads(const bench *self)
{
    static const unsigned counts[] = {1, 2, 4, 8, THREADS};
    bare_objects objects;
    bare_make(&objects, 0);
    report_heading(self->report, "Threads, each on a stream of its own, one pool for all", false);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        measure(self, objects.pool, counts[i]);
    bare_destroy(&objects);
}
