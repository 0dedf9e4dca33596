/* Kernels that take a given time on the device and write eight bytes or nothing. On the simulated driver they take no
 * time. */
#ifndef STRATA_BENCH_DELAY_H
#define STRATA_BENCH_DELAY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Loads the kernels into the current context. `library` is the driver that bare_open has opened. */
void delay_load(const char *library, bool simulated);

/* One thread spins for that time. */
void delay_stream(CUstream stream, uint64_t nanoseconds);

/* One thread spins for `ticks` of its clock and writes the clock to `to`, unless that is 0. */
void delay_and_write(CUstream stream, uint64_t ticks, CUdeviceptr to);

/* Keeps streams behind the host. */
typedef struct delay_keeper {
    uint64_t behind_ns;
    uint64_t *busy_until; /* for each stream, by the host's clock; zero at first */
} delay_keeper;

/* Gives `stream`, with number `index`, work until at least `behind_ns` after `now`. */
void delay_keep(delay_keeper *self, size_t index, CUstream stream, uint64_t now);

#endif
