/* The machine and the versions that the figures are of. */
#ifndef STRATA_BENCH_MACHINE_H
#define STRATA_BENCH_MACHINE_H

#include <strata/info.h>

typedef void machine_fact(void *to, const char *name, const char *text);

void machine_describe(machine_fact *add, void *to, const strata_driver_info *driver, const strata_device_info *device,
                      size_t rounds);

#endif
