/* strata_bench: Strata beside the bare driver, in one process, on the library as it is installed. Each subject is a
 * file; what they share stands here. */
#ifndef STRATA_BENCH_BENCH_H
#define STRATA_BENCH_BENCH_H

#include "bare.h"
#include "measure.h"
#include "report.h"
#include "scene.h"

typedef struct bench {
    const char *filter; /* NULL, or what the name of a row must contain */
    size_t rounds;
    bool simulated;
    CUcontext context;      /* the primary one, current on every thread that measures */
    strata_runtime *late;   /* stack async, events recorded when they are needed: the default */
    strata_runtime *early;  /* stack async, one event for each launch */
    strata_runtime *direct; /* stack direct */
    report *report;
} bench;

/* What the library asks the driver when a block is used on an unknown stream: whether it is being captured and its
 * id, in prepare and again in finish, since the handle is good only during each call; and one event. */
enum { BENCH_IDENTIFICATIONS_PER_USE = 2, BENCH_RECORDS_PER_USE = 1 };

/* Whether a row is asked for. */
bool bench_wants(const bench *self, const char *name);

typedef struct bench_target {
    report_target kind;
    double nanoseconds;
} bench_target;

/* Measures one row, if it is asked for. A bare side without `run` does not apply. */
void bench_row(const bench *self, const char *name, bench_plan plan, bench_side bare_side, bench_side strata_side,
               bench_target target);

/* The subjects, in the order of the report. The counted one needs a process of its own, see counts.h. */
void bench_pairs(const bench *self);
void bench_uses(const bench *self);
void bench_launches(const bench *self);
void bench_events(const bench *self);
void bench_threads(const bench *self);
void bench_layers(const bench *self);

#endif
