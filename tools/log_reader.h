/* Reading binary logs: docs/formats/slog.md has the format.
 *
 * A log whose writer was killed in the middle of a write ends with a part of a batch. That is told and nothing more.
 * What is damaged is refused with the place. */
#ifndef STRATA_TOOLS_LOG_READER_H
#define STRATA_TOOLS_LOG_READER_H

#include "resources/logging/format.h"

#include <strata/logging.h>

enum { LOG_STACK_ROOM = 4097 };

/* A log in memory. Tags of the records are this process's, interned anew. */
typedef struct log_contents {
    strata_log_record *records; /* in the order of their times */
    size_t count;
    uint64_t late;       /* of them stood behind younger ones */
    uint64_t dropped;    /* records that the writer knew to be lost */
    uint64_t torn;       /* bytes at the end that are a part of a batch */
    uint64_t created_ns; /* wall clock */
    uint32_t process;
    int32_t device;
    char stack[LOG_STACK_ROOM]; /* as text, "" if nothing was recorded; escaped */
} log_contents;

typedef struct log_problem {
    char text[512]; /* "byte 1234: reason", or a reason alone */
} log_problem;

/* Reads a whole log out of memory. False, with the reason and nothing to free, if it is damaged or no log. */
bool log_read_bytes(const void *bytes, size_t size, log_contents *out, log_problem *problem);

/* The same from a file, plain or gzip. */
bool log_read_file(const char *path, log_contents *out, log_problem *problem);

/* Whether a file that begins with this line is a binary log. */
bool log_begins_with(const char *line);

/* Puts records into the order of their times. False without host memory. */
bool log_sort(strata_log_record *records, size_t count);

void log_contents_free(log_contents *contents);

#endif
