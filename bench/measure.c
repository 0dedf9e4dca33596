#include "measure.h"

#include "clock.h"
#include "cores.h"

#include <stdlib.h>

static void make_ready(const bench_side *side, bench_plan plan, size_t operations)
{
    if (plan.ready)
        plan.ready(side->state, operations);
}

static double run_round(const bench_side *side, bench_plan plan)
{
    double spent = 0;
    for (size_t i = 0; i < plan.batches; i++) {
        make_ready(side, plan, plan.warm);
        side->run(side->state, plan.warm);
        make_ready(side, plan, plan.batch);
        uint64_t start = bench_now();
        side->run(side->state, plan.batch);
        const uint64_t end = bench_now();
        spent += plan.spent ? plan.spent(side->state) : (double)(end - start);
        if (side->drain)
            side->drain(side->state);
    }
    return spent / (double)(plan.batch * plan.batches);
}

enum { MOST_TIMES = 20 }; /* limit of repetitions of a round on busy cores */

static double run_quiet_round(const bench_side *side, bench_plan plan)
{
    for (int attempt = 1;; attempt++) {
        if (!cores_is_quiet()) {
            cores_take_quiet();
            run_round(side, plan); /* warms the new core's caches */
        }
        const double figure = run_round(side, plan);
        if (cores_is_quiet() || attempt == MOST_TIMES)
            return figure;
        cores_seen.repeated++;
    }
}

static double measure_round(const bench_side *side, bench_plan plan)
{
    return plan.quiet ? run_quiet_round(side, plan) : run_round(side, plan);
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

size_t bench_rounds_within(double limit, double first, size_t rounds)
{
    if (limit <= 0 || first * (double)rounds <= limit)
        return rounds;
    return (size_t)(limit / first);
}

static bool takes_round(size_t share, size_t rounds, size_t round)
{
    return share * (round + 1) / rounds > share * round / rounds;
}

void bench_measure_counting(size_t rounds, bench_plan plan, const bench_side *sides, size_t count, double *nanoseconds,
                            size_t *counted)
{
    static double samples[BENCH_SIDES_LIMIT][BENCH_ROUNDS_LIMIT];
    size_t share[BENCH_SIDES_LIMIT], taken[BENCH_SIDES_LIMIT] = {0};
    if (plan.quiet)
        cores_take_quiet();
    for (size_t side = 0; side < count; side++) {
        const uint64_t start = bench_now();
        samples[side][0] = measure_round(&sides[side], plan);
        share[side] = bench_rounds_within(plan.limit, (double)(bench_now() - start), rounds);
    }
    for (size_t round = 0; round < rounds; round++)
        for (size_t offset = 0; offset < count; offset++) {
            size_t side = (round + offset) % count; /* no side is always first */
            if (takes_round(share[side], rounds, round))
                samples[side][taken[side]++] = measure_round(&sides[side], plan);
        }
    if (plan.quiet)
        cores_leave();
    for (size_t side = 0; side < count; side++) {
        if (taken[side] == 0)
            taken[side] = 1; /* the warm-up round */
        nanoseconds[side] = bench_median(samples[side], taken[side]);
        if (counted)
            counted[side] = taken[side];
    }
}

void bench_measure(size_t rounds, bench_plan plan, const bench_side *sides, size_t count, double *nanoseconds)
{
    bench_measure_counting(rounds, plan, sides, count, nanoseconds, NULL);
}
