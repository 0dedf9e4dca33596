/* The rule of google/benchmark, src/benchmark_runner.cc, for benchmarks that ask for neither real nor manual time. */
#include "repetition.h"

static const size_t most_iterations = 1000000000;

static double greater(double a, double b)
{
    return a > b ? a : b;
}

bool repetition_suffices(const repetition *trial, double least)
{
    return trial->iterations >= most_iterations || trial->cpu_seconds >= least || trial->seconds >= 5 * least;
}

size_t repetition_next(const repetition *trial, double least)
{
    const double iterations = (double)trial->iterations;
    double factor = least * 1.4 / greater(trial->cpu_seconds, 1e-9);
    if (trial->cpu_seconds / least <= 0.1 && factor > 10)
        factor = 10; /* too short a trial to predict from */
    const size_t next = (size_t)(greater(factor * iterations, iterations + 1) + 0.5);
    return next < most_iterations ? next : most_iterations;
}
