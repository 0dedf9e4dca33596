/* Where the figures come from: without it they say nothing. */
#ifndef STRATA_BENCH_MACHINE_H
#define STRATA_BENCH_MACHINE_H

#include <strata/info.h>

/* Takes one fact. */
typedef void machine_fact(void *to, const char *name, const char *text);

/* Tells date, machine, GPU, driver and library, one after another. */
void machine_describe(machine_fact *tell, void *to, const strata_driver_info *driver, const strata_device_info *device,
                      size_t rounds);

#endif
