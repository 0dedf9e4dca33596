/* Uses of one block, and strata_runtime_get. */
#include "bench.h"

#include <pthread.h>

/* The driver calls of a use on an unknown stream. As in Strata, a stream has eight events, and the oldest is recorded.
 */
static void identify_and_record(void *state, size_t operations)
{
    bare_objects *objects = state;
    CUstream stream = objects->streams[0];
    for (size_t i = 0; i < operations; i++) {
        for (size_t n = 0; n < BENCH_IDENTIFICATIONS_PER_USE; n++) {
            CUstreamCaptureStatus capture;
            unsigned long long id;
            bare_check(bare.StreamIsCapturing(stream, &capture), "cuStreamIsCapturing");
            bare_check(bare.StreamGetId(stream, &id), "cuStreamGetId");
        }
        for (size_t n = 0; n < BENCH_RECORDS_PER_USE; n++)
            bare_check(bare.EventRecord(objects->events[objects->rotation++ % 8], stream), "cuEventRecord");
    }
}

static void get_runtime(void *state, size_t operations)
{
    (void)state;
    for (size_t i = 0; i < operations; i++) {
        strata_runtime *runtime;
        scene_check(strata_runtime_get(0, &runtime), "strata_runtime_get");
    }
}

/* A block whose allocating thread has ended, so its shared count pins it. */
typedef struct foreign_thread {
    scene *stage;
    CUcontext context;
} foreign_thread;

static void *allocate_elsewhere(void *state)
{
    const foreign_thread *self = state;
    scene *stage = self->stage;
    bare_check(bare.CtxSetCurrent(self->context), "cuCtxSetCurrent");
    scene_check(strata_runtime_allocate(stage->runtime, SCENE_BLOCK_BYTES, stage->streams[0], &stage->blocks[0]),
                "strata_runtime_allocate");
    return NULL;
}

static void replace_by_foreign_block(const bench *self, scene *stage)
{
    pthread_t thread;
    foreign_thread hand = {stage, self->context};
    scene_check(strata_runtime_deallocate(stage->runtime, &stage->blocks[0]), "strata_runtime_deallocate");
    if (pthread_create(&thread, NULL, allocate_elsewhere, &hand) != 0 || pthread_join(thread, NULL) != 0)
        bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
}

void bench_uses(const bench *self)
{
    const bench_side nothing = {NULL, NULL, NULL};
    const bench_plan quick = {.batch = 20000, .batches = 1};
    const bench_plan queued = {.warm = 20, .batch = 200, .batches = 5};
    const bench_target none = {REPORT_NO_TARGET, 0};
    const bench_target own = {REPORT_TAKES_AT_MOST, 20};
    const bench_target unknown = {REPORT_ADDS_AT_MOST, 40};
    bare_objects objects;
    scene stage;
    bare_make(&objects, 0);
    scene_make(&stage, self->late);
    bench_side asked = {identify_and_record, bare_drain, &objects};

    report_heading(self->report, "Using a block: prepare and finish", false);
    bench_row(self, "use, own known stream, write", quick, nothing,
              (bench_side){scene_write_on_own_stream, NULL, &stage}, own);
    bench_row(self, "use, own known stream, read", quick, nothing, (bench_side){scene_read_on_own_stream, NULL, &stage},
              own);
    bench_row(self, "use, own unknown stream, write (bare: identify twice, record)", queued, asked,
              (bench_side){scene_write_on_unknown_stream, scene_drain, &stage}, unknown);
    bench_row(self, "use, own unknown stream, read (bare: identify twice, record)", queued, asked,
              (bench_side){scene_read_on_unknown_stream, scene_drain, &stage}, unknown);
    bench_row(self, "hand-over between two known streams (bare: record, wait)", queued,
              (bench_side){bare_hand_over, bare_drain, &objects}, (bench_side){scene_hand_over, scene_drain, &stage},
              none);
    replace_by_foreign_block(self, &stage);
    bench_row(self, "use, another thread's block, write", quick, nothing,
              (bench_side){scene_write_on_own_stream, NULL, &stage}, none);
    bench_row(self, "use, another thread's block, read", quick, nothing,
              (bench_side){scene_read_on_own_stream, NULL, &stage}, none);
    bench_row(self, "strata_runtime_get", (bench_plan){.batch = 100000, .batches = 1}, nothing,
              (bench_side){get_runtime, NULL, NULL}, (bench_target){REPORT_TAKES_AT_MOST, 3});
    scene_destroy(&stage);
    bare_destroy(&objects);
}
