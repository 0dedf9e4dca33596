/* A replay's report, as text or JSON. */
#ifndef STRATA_TOOLS_REPLAY_REPORT_H
#define STRATA_TOOLS_REPLAY_REPORT_H

#include "tools/replay/replay_engine.h"

#include <strata/control.h>
#include <strata/info.h>

#include <stdio.h>

typedef struct report {
    const strata_driver_info *driver;
    const strata_device_info *device;
    const char *stack; /* its text */
    const trace *traces;
    size_t trace_count;
    const replay_options *options;
    const replay_result *result;
    strata_stack *layers; /* NULL: without counts of layers */
} report;

/* False if `to` cannot be written. */
bool report_text(const report *report, FILE *to);
bool report_json(const report *report, FILE *to);

#endif
