/* The launch recorder from begin to end, without work in between. */
#include "bench.h"

void bench_launches(const bench *self)
{
    const bench_side nothing = {NULL, NULL, NULL};
    const bench_plan quick = {.batch = 1000, .batches = 1};
    const bench_target none = {REPORT_NO_TARGET, 0};
    bare_objects objects;
    scene stage;
    bare_make(&objects, 0);
    scene_make(&stage, self->late);
    report_heading(self->report, "The launch recorder, begin to end", false);
    bench_row(self, "launch, own known stream, 1 block", quick, nothing, (bench_side){scene_launch_1, NULL, &stage},
              none);
    bench_row(self, "launch, own known stream, 8 blocks", quick, nothing, (bench_side){scene_launch_8, NULL, &stage},
              none);
    bench_row(self, "launch, own known stream, 64 blocks", quick, nothing, (bench_side){scene_launch_64, NULL, &stage},
              none);
    bench_row(self, "launch, 64 blocks handed over (bare: record, wait)",
              (bench_plan){.warm = 10, .batch = 100, .batches = 5}, (bench_side){bare_hand_over, bare_drain, &objects},
              (bench_side){scene_launch_64_hand_over, scene_drain, &stage}, none);
    scene_destroy(&stage);
    bare_destroy(&objects);
}
