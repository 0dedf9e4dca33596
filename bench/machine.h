/* Where the figures come from: without it they say nothing. */
#ifndef STRATA_BENCH_MACHINE_H
#define STRATA_BENCH_MACHINE_H

#include "report.h"

#include <strata/info.h>

/* Adds date, machine, GPU, driver and library to the report. */
void machine_describe(report *to, const strata_driver_info *driver, const strata_device_info *device, size_t rounds);

#endif
