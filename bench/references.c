/* References: access, clone and release. */
#include "bench.h"

#include <pthread.h>

enum { LENGTH = 1024 };

static void access_memory(void *state, size_t operations)
{
    strata_ref_memory memory;
    for (size_t i = 0; i < operations; i++)
        scene_check(strata_ref_access(state, &memory), "strata_ref_access");
}

static void clone_and_release(void *state, size_t operations)
{
    for (size_t i = 0; i < operations; i++)
        scene_check(strata_ref_release(strata_ref_clone(state)), "strata_ref_release");
}

static void allocate_and_release(void *state, size_t operations)
{
    for (size_t i = 0; i < operations; i++) {
        strata_ref *ref;
        scene_check(strata_ref_allocate(state, STRATA_ELEMENT_F32, LENGTH, false, NULL, &ref), "strata_ref_allocate");
        scene_check(strata_ref_release(ref), "strata_ref_release");
    }
}

/* Another thread's release of a cloned reference makes every thread use the shared count. */
static void *release(void *ref)
{
    scene_check(strata_ref_release(ref), "strata_ref_release");
    return NULL;
}

static void release_elsewhere(strata_ref *ref)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, release, ref) != 0 || pthread_join(thread, NULL) != 0)
        bare_failed(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
}

void bench_references(const bench *self)
{
    const bench_side nothing = {NULL, NULL, NULL};
    const bench_plan quick = {.batch = 100000, .batches = 1};
    const bench_target none = {REPORT_NO_TARGET, 0};
    strata_ref *own, *shared;
    scene_check(strata_ref_allocate(self->late, STRATA_ELEMENT_F32, LENGTH, false, NULL, &own), "strata_ref_allocate");
    scene_check(strata_ref_allocate(self->late, STRATA_ELEMENT_F32, LENGTH, false, NULL, &shared),
                "strata_ref_allocate");
    release_elsewhere(strata_ref_clone(shared));
    report_heading(self->report, "References", false);
    bench_row(self, "reference, access", quick, nothing, (bench_side){access_memory, NULL, own},
              (bench_target){REPORT_TAKES_AT_MOST, 5});
    bench_row(self, "reference, clone and release on the making thread", quick, nothing,
              (bench_side){clone_and_release, NULL, own}, (bench_target){REPORT_TAKES_AT_MOST, 10});
    bench_row(self, "reference, clone and release after another thread's release", quick, nothing,
              (bench_side){clone_and_release, NULL, shared}, none);
    bench_row(self, "reference, allocate and release", (bench_plan){.batch = 1000, .batches = 1}, nothing,
              (bench_side){allocate_and_release, NULL, self->late}, none);
    scene_check(strata_ref_release(own), "strata_ref_release");
    scene_check(strata_ref_release(shared), "strata_ref_release");
}
