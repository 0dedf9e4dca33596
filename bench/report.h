/* What was measured: rows of nanoseconds and rows of driver calls, printed as a table while they come in, or as one
 * JSON object at the end. */
#ifndef STRATA_BENCH_REPORT_H
#define STRATA_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum report_target {
    REPORT_NO_TARGET = 0,
    REPORT_ADDS_AT_MOST,  /* the difference between Strata and the bare driver */
    REPORT_TAKES_AT_MOST, /* Strata's own figure */
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
    REPORT_EXPECT_NOTHING = 0, /* nothing is promised */
    REPORT_EXPECT_NO_CALL,     /* not one driver call */
    REPORT_EXPECT_THESE,       /* of each call that is named, exactly so many an operation */
} report_expectation;

/* Strata's driver calls during `operations` operations. */
typedef struct report_calls {
    char name[REPORT_NAME_SIZE];
    uint64_t operations;
    size_t call_count;
    report_call calls[REPORT_CALLS]; /* in all of the operations */
    report_expectation kind;
    size_t expected_count;
    report_call expected[REPORT_CALLS]; /* in each operation */
} report_calls;

typedef struct report report;

/* A report on `out`. With `json`, nothing is printed before report_finish. Ends the program without memory. */
report *report_begin(FILE *out, bool json);

/* Facts about the machine come first, then rows under headings, whose texts live as long as the report; a heading
 * without rows is not printed. */
void report_add_fact(void *self, const char *name, const char *text);
void report_heading(report *self, const char *heading, bool calls);
void report_add_times(report *self, const report_times *row);
void report_add_calls(report *self, const report_calls *row);
void report_remark(report *self, const char *text);

/* Prints the rest and frees the report. Returns how many targets were missed; *rows is how many rows there were. */
size_t report_finish(report *self, size_t *rows);

#endif
