/* Kernels that take a given time on the device; on the simulated driver, none. */
#ifndef STRATA_BENCH_DELAY_H
#define STRATA_BENCH_DELAY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `library` is the driver that bare_open has opened. */
void delay_load(const char *library, bool simulated);

void delay_stream(CUstream stream, uint64_t nanoseconds);

/* Spins for `ticks` of the device's clock, then writes the clock to `to`, unless that is 0. */
void delay_and_write(CUstream stream, uint64_t ticks, CUdeviceptr to);

/* Keeps streams behind the host. */
typedef struct delay_backlog {
    uint64_t behind_ns;
    uint64_t *busy_until; /* by stream, on the host's clock; zero at first */
} delay_backlog;

/* Gives `stream` work until at least `behind_ns` after `now`. */
void delay_extend(delay_backlog *self, size_t index, CUstream stream, uint64_t now);

#endif
