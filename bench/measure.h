/* All sides are measured alternately, round by round, so that disturbances of the machine affect all of them. The
 * result is the median of the rounds. */
#ifndef STRATA_BENCH_MEASURE_H
#define STRATA_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One competitor. A round runs `batches` times: a short warm-up, a batch with the clock running, then drain with the
 * clock stopped, so that no timed call waits for a full queue. The warm-up refills the caches, which the driver has
 * used while draining. */
typedef struct bench_side {
    void (*run)(void *state, size_t operations);
    void (*drain)(void *state); /* NULL: nothing to wait for */
    void *state;
} bench_side;

typedef struct bench_plan {
    size_t warm;
    size_t batch;
    size_t batches;
    /* For several threads. NULL: the figure is the wall time of a run. */
    void (*ready)(void *state, size_t operations); /* before each run, not timed: wakes the threads */
    double (*spent)(void *state);                  /* mean nanoseconds of a thread in the last run */
    /* Nanoseconds for the rounds of one side; a slower side runs fewer, spread evenly. If the warm-up round alone takes
     * longer, it counts as the only one. 0: no limit. */
    double limit;
    /* For one thread: rounds run on the quietest core, and are repeated if the core became busy. */
    bool quiet;
} bench_plan;

enum { BENCH_SIDES_LIMIT = 96, BENCH_ROUNDS_LIMIT = 1001 };

/* How many of `rounds` a side may run within `limit`; its first took `first`. */
size_t bench_rounds_within(double limit, double first, size_t rounds);

/* Writes each side's median nanoseconds per operation, and its number of rounds into `counted` unless that is NULL. The
 * first round only warms up. */
void bench_measure_counting(size_t rounds, bench_plan plan, const bench_side *sides, size_t count, double *nanoseconds,
                            size_t *counted);

void bench_measure(size_t rounds, bench_plan plan, const bench_side *sides, size_t count, double *nanoseconds);

/* Sorts the values in place. */
double bench_median(double *values, size_t count);

#endif
