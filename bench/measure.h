/* All sides are measured alternately, so that disturbances of the machine affect all. The result is the median of the
 * rounds. */
#ifndef STRATA_BENCH_MEASURE_H
#define STRATA_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A round is `batches` times: a warm-up, a batch with the clock running, then drain with the clock stopped, so that no
 * timed call waits for a full queue. The warm-up refills the caches, which the driver has used while draining. */
typedef struct bench_side {
    void (*run)(void *state, size_t operations);
    void (*drain)(void *state); /* NULL: nothing to wait for */
    void *state;
} bench_side;

typedef struct bench_plan {
    size_t warm;
    size_t batch;
    size_t batches;
    /* For several threads. NULL: wall time. */
    void (*ready)(void *state, size_t operations); /* wakes the threads before each run, not timed */
    double (*spent)(void *state); /* nanoseconds of the last run: of a thread, the mean, or of the GPU */
    /* Nanoseconds for a side's rounds; a slower side runs fewer. If its warm-up takes longer, that is its only round.
     * 0: no limit. */
    double limit;
    /* For one thread: rounds run on a quiet core, or are repeated. */
    bool quiet;
} bench_plan;

enum { BENCH_SIDES_LIMIT = 96, BENCH_ROUNDS_LIMIT = 1001 };

/* `first`: nanoseconds of the first round. */
size_t bench_rounds_within(double limit, double first, size_t rounds);

/* Writes median nanoseconds per operation and, unless NULL, the rounds of each side. The first round only warms up. */
void bench_measure_counting(size_t rounds, bench_plan plan, const bench_side *sides, size_t count, double *nanoseconds,
                            size_t *counted);

void bench_measure(size_t rounds, bench_plan plan, const bench_side *sides, size_t count, double *nanoseconds);

/* Sorts the values in place. */
double bench_median(double *values, size_t count);

#endif
