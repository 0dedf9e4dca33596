/* Reports stored in memory, and parsed as JSON. */
#ifndef STRATA_TEST_REPORT_H
#define STRATA_TEST_REPORT_H

#include "support/driver.h"

#include <jansson.h>
#include <string.h>

enum { TEST_REPORT_ROOM = 1 << 16 };

typedef struct test_report {
    size_t length;
    char text[TEST_REPORT_ROOM]; /* terminated */
} test_report;

/* A strata_write_callback; `data` is the report. */
static inline void test_report_write(const char *text, size_t length, void *data)
{
    test_report *report = data;
    if (length >= TEST_REPORT_ROOM - report->length)
        fail_msg("the report is longer than there is room");
    memcpy(report->text + report->length, text, length);
    report->length += length;
    report->text[report->length] = '\0';
}

/* The report as JSON, to be released by json_decref. The test fails if it is not JSON, or has a name twice. */
static inline json_t *test_report_parse(const test_report *report)
{
    json_error_t error;
    json_t *root = json_loads(report->text, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d, column %d: %s\n%s", error.line, error.column, error.text, report->text);
    return root;
}

#endif
