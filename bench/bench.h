/* strata_bench: Strata beside the bare driver, in one process, on the shared library as it is installed. Each subject
 * is a file. */
#ifndef STRATA_BENCH_BENCH_H
#define STRATA_BENCH_BENCH_H

#include "bare.h"
#include "measure.h"
#include "report.h"
#include "scene.h"

typedef struct bench {
    const char *filter; /* NULL, or a part of a row's name */
    size_t rounds;
    bool simulated;
    CUcontext context;     /* primary, current on every measuring thread */
    strata_runtime *late;  /* stack async, events recorded when needed */
    strata_runtime *early; /* stack async, one event a launch */
    strata_runtime *direct;
    report *report;
} bench;

/* Driver calls of a use on an unknown stream. Prepare and finish each identify it, since the handle is valid only
 * during a call. */
enum { BENCH_IDENTIFICATIONS_PER_USE = 2, BENCH_RECORDS_PER_USE = 1 };

bool bench_wants(const bench *self, const char *name);

typedef struct bench_target {
    report_target kind;
    double nanoseconds;
} bench_target;

/* Measures the row if the filter selects it. A side without `run` does not apply. */
void bench_row(const bench *self, const char *name, bench_plan plan, bench_side bare_side, bench_side strata_side,
               bench_target target);

/* The subjects, in the order of the report. */
void bench_pairs(const bench *self);
void bench_uses(const bench *self);
void bench_launches(const bench *self);
void bench_events(const bench *self);
void bench_threads(const bench *self);
void bench_layers(const bench *self);
void bench_bounds(const bench *self);
void bench_references(const bench *self);
void bench_graphs(const bench *self);
void bench_blas(const bench *self);
void bench_service(const bench *self);

#endif
