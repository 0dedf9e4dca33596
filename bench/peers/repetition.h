/* How often Google benchmark repeats an iteration: RMM's programs use it. */
#ifndef STRATA_BENCH_REPETITION_H
#define STRATA_BENCH_REPETITION_H

#include <stdbool.h>
#include <stddef.h>

/* A trial: that many iterations, one after another. */
typedef struct repetition {
    size_t iterations;
    double cpu_seconds; /* of the thread */
    double seconds;
} repetition;

/* Whether the trial's mean is the result, where `least` is the value of --benchmark_min_time. */
bool repetition_suffices(const repetition *trial, double least);

/* The iterations of the next trial. */
size_t repetition_next(const repetition *trial, double least);

#endif
