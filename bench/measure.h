/* How everything is measured: the competitors take turns, round by round, so that whatever the machine does meanwhile
 * happens to all of them, and the median of the rounds is kept. */
#ifndef STRATA_BENCH_MEASURE_H
#define STRATA_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One competitor. A round is `batches` times: run a few operations to warm up, then a batch with the clock running,
 * then drain with the clock stopped, so that the host never waits for a full queue while it is timed. The warm-up is
 * there because settling leaves the caches to the driver: without it, what is measured is in part the way back from
 * there. */
typedef struct bench_side {
    void (*run)(void *state, size_t operations);
    void (*drain)(void *state); /* NULL: nothing to wait for */
    void *state;
} bench_side;

typedef struct bench_plan {
    size_t warm;
    size_t batch;
    size_t batches;
    /* For sides of several threads; NULL: the wall time of a run is what it took. */
    void (*ready)(void *state, size_t operations); /* before each run, with the clock stopped: wakes the threads */
    double (*spent)(void *state);                  /* nanoseconds that the last run took each thread, the mean */
    /* Nanoseconds that the rounds of one side may take: a slower one has fewer of them, spread evenly. One whose first
     * round alone takes longer has no other, and that one counts. 0: as many as it takes. */
    double limit;
    /* Of one thread: rounds on the core that is hindered least just then; one during which it was hindered is measured
     * again. */
    bool quiet;
} bench_plan;

enum { BENCH_SIDES_LIMIT = 96, BENCH_ROUNDS_LIMIT = 1001 };

/* How many of `rounds` a side may take under a plan's limit whose first one took so long. */
size_t bench_rounds_within(double limit, double first, size_t rounds);

/* Writes the median nanoseconds per operation of each side, and into `counted`, unless it is NULL, of how many rounds.
 * One further round, the first, only warms up. */
void bench_measure_counting(size_t rounds, bench_plan plan, const bench_side *sides, size_t count, double *nanoseconds,
                            size_t *counted);

void bench_measure(size_t rounds, bench_plan plan, const bench_side *sides, size_t count, double *nanoseconds);

/* The median of `count` values, which are sorted in place. */
double bench_median(double *values, size_t count);

#endif
