/* Work that takes its time on the device and touches nothing, or eight bytes: kernels of the benchmark's own. On the
 * simulated driver they take none. */
#ifndef STRATA_BENCH_DELAY_H
#define STRATA_BENCH_DELAY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Loads the kernels into the current context. `library` is the driver's, which bare_open has been given. */
void delay_load(const char *library, bool simulated);

/* One thread spins until so many nanoseconds have passed. */
void delay_stream(CUstream stream, uint64_t nanoseconds);

/* One thread spins until so many ticks of its clock have passed and writes the clock to `to`, unless that is 0. */
void delay_and_write(CUstream stream, uint64_t ticks, CUdeviceptr to);

/* Keeping streams behind the host. */
typedef struct delay_keeper {
    uint64_t behind_ns;
    uint64_t *busy_until; /* for each stream, as the host's clock goes; all zero at first */
} delay_keeper;

/* Sees to it that `stream`, whose number is `index`, has work for at least `behind_ns` from `now` on. */
void delay_keep(delay_keeper *self, size_t index, CUstream stream, uint64_t now);

#endif
