#ifndef STRATA_BENCH_CLOCK_H
#define STRATA_BENCH_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC, in nanoseconds: the clock of all measurements. */
uint64_t bench_now(void);

#endif
