/* Rows of times and of driver calls, printed as a table while they come in, or as one JSON object at the end. */
#ifndef STRATA_BENCH_REPORT_H
#define STRATA_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum report_target {
    REPORT_NO_TARGET = 0,
    REPORT_ADDS_AT_MOST,  /* limit of Strata's figure less the bare driver's */
    REPORT_TAKES_AT_MOST, /* limit of Strata's figure */
    REPORT_TIMES_AT_MOST, /* limit of its ratio to the bare driver's figure */
} report_target;

enum { REPORT_NAME_SIZE = 96, REPORT_CALLS = 12, REPORT_CALL_SIZE = 40 };

/* Nanoseconds per operation; negative: does not apply. */
typedef struct report_times {
    char name[REPORT_NAME_SIZE];
    double bare;
    double strata;
    report_target kind;
    double target;
} report_times;

typedef struct report_call {
    char name[REPORT_CALL_SIZE];
    uint64_t count;
} report_call;

typedef enum report_expectation {
    REPORT_EXPECT_NOTHING = 0,
    REPORT_EXPECT_NO_CALL,
    REPORT_EXPECT_THESE, /* exactly these, per operation */
} report_expectation;

typedef struct report_calls {
    char name[REPORT_NAME_SIZE];
    uint64_t operations;
    size_t call_count;
    report_call calls[REPORT_CALLS]; /* in all operations */
    report_expectation kind;
    size_t expected_count;
    report_call expected[REPORT_CALLS]; /* per operation */
} report_calls;

typedef struct report report;

/* Prints to `out`; with `json`, at report_finish. Exits without memory. */
report *report_begin(FILE *out, bool json);

/* Facts first, then rows under headings. A heading's text must outlive the report. */
void report_add_fact(void *self, const char *name, const char *text);
void report_heading(report *self, const char *heading, bool calls);
void report_add_times(report *self, const report_times *row);
void report_add_calls(report *self, const report_calls *row);
void report_remark(report *self, const char *text);

/* Prints the rest and frees the report. Returns the number of missed targets. */
size_t report_finish(report *self, size_t *rows);

#endif
