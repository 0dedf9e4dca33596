/* The demonstration's report, as text or JSON. */
#ifndef STRATA_TOOLS_DEMO_REPORT_H
#define STRATA_TOOLS_DEMO_REPORT_H

#include "tools/demo/demo.h"

#include <stdio.h>

typedef struct demo_report {
    const demo *of;
    const strata_driver_info *driver;
    const strata_device_info *device;
} demo_report;

/* False if `to` cannot be written. */
bool demo_report_text(const demo_report *report, FILE *to);
bool demo_report_json(const demo_report *report, FILE *to);

#endif
