/* Which driver calls Strata makes for what. Counting must be asked for before the driver is opened and costs time, so
 * it happens in a child process that is forked before anything else. */
#ifndef STRATA_BENCH_COUNTS_H
#define STRATA_BENCH_COUNTS_H

#include "report.h"

enum { COUNTS_LIMIT = 20 };

typedef struct counts {
    size_t count;
    report_calls rows[COUNTS_LIMIT];
} counts;

/* Counts everything. The process may not have opened the driver, nor have started a thread. Ends the program where the
 * child fails. */
void counts_take(counts *out);

#endif
