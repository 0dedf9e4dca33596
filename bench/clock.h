/* The clock of all measurements: CLOCK_MONOTONIC. */
#ifndef STRATA_BENCH_CLOCK_H
#define STRATA_BENCH_CLOCK_H

#include <stdint.h>

/* Nanoseconds. */
uint64_t bench_now(void);

#endif
