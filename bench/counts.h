/* Counts of Strata's driver calls. Counting starts before the driver is opened and costs time, so a child process does
 * it. */
#ifndef STRATA_BENCH_COUNTS_H
#define STRATA_BENCH_COUNTS_H

#include "report.h"

enum { COUNTS_LIMIT = 20 };

typedef struct counts {
    size_t count;
    report_calls rows[COUNTS_LIMIT];
} counts;

/* Called before the driver is opened and threads start. Exits if the child fails. */
void counts_take(counts *out);

#endif
