/* Output formats of `strata log`. */
#ifndef STRATA_TOOLS_LOG_LOG_PRINT_H
#define STRATA_TOOLS_LOG_LOG_PRINT_H

#include <strata/logging.h>

#include <stdio.h>

/* A table for people, the layer's CSV, or one JSON object a line. Prints a heading before the first record. False if
 * JSON has no host memory. */
typedef struct log_style {
    void (*begin)(FILE *to);
    bool (*record)(FILE *to, const strata_log_record *record);
} log_style;

extern const log_style log_style_table, log_style_csv, log_style_json;

typedef struct log_totals {
    uint64_t count[STRATA_LOG_KIND_LIMIT], failures[STRATA_LOG_KIND_LIMIT], bytes[STRATA_LOG_KIND_LIMIT];
    uint64_t records, late, dropped, torn;
    uint64_t first_ns, last_ns; /* wall clock */
    uint64_t live, peak;        /* of blocks allocated in the log */
    uint64_t live_blocks;
    uint64_t pending; /* of frees without a completion */
} log_totals;

void log_totals_add(log_totals *totals, const strata_log_record *record);
void log_totals_print(FILE *to, const log_totals *totals);
bool log_totals_print_json(FILE *to, const log_totals *totals);

#endif
