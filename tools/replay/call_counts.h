/* Driver calls by entry point, between two moments. */
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

/* Reads the counts since the process began. Zero unless strata_driver_count_calls() was called before the driver was
 * opened. */
void call_counts_now(call_counts *counts);

/* Adds the counts between `before` and `after`. */
void call_counts_add_between(call_counts *sum, const call_counts *before, const call_counts *after);

#endif
