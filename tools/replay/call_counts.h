/* How often each entry point of the driver was called, between two moments. */
#ifndef STRATA_TOOLS_REPLAY_CALL_COUNTS_H
#define STRATA_TOOLS_REPLAY_CALL_COUNTS_H

#include <stdint.h>

enum { CALL_COUNTS_LIMIT = 128 };

typedef struct call_count {
    const char *name; /* lives as long as the process */
    uint64_t count;
} call_count;

typedef struct call_counts {
    uint32_t used;
    call_count calls[CALL_COUNTS_LIMIT];
} call_counts;

/* What was counted since the process began. All zero unless strata_driver_count_calls() came before the driver. */
void call_counts_now(call_counts *counts);

/* Adds to `sum` what was counted between `before` and `after`. */
void call_counts_add_between(call_counts *sum, const call_counts *before, const call_counts *after);

#endif
