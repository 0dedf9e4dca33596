/* Reading binary logs: docs/formats/slog.md has the format.
 *
 * A log whose writer was killed in the middle of a write ends with a part of a batch. That is told and nothing more.
 * What is damaged is left out, up to the next whole batch, and told with the place. */
#ifndef STRATA_TOOLS_LOG_LOG_READER_H
#define STRATA_TOOLS_LOG_LOG_READER_H

#include "resources/logging/format.h"

#include <strata/logging.h>

enum {
    LOG_STACK_ROOM = 4097,
    LOG_DAMAGES = 8,
    LOG_READ_ROOM = 4 * LOG_BATCH_BYTES, /* of so many bytes a decoder always uses some */
};

typedef struct log_problem {
    char text[512]; /* "byte 1234: reason", or a reason alone */
} log_problem;

/* A log in memory. Tags of the records are this process's, interned anew. */
typedef struct log_contents {
    strata_log_record *records; /* in the order of their times */
    size_t count;
    uint64_t late;       /* of them stood behind younger ones */
    uint64_t dropped;    /* records that the writer knew to be lost */
    uint64_t torn;       /* bytes at the end that are a part of a batch */
    uint64_t damages;    /* places where something is damaged */
    uint64_t created_ns; /* wall clock */
    uint32_t process;
    int32_t device;
    char stack[LOG_STACK_ROOM];      /* as text, "" if nothing was recorded; escaped */
    log_problem damage[LOG_DAMAGES]; /* the first of the places: what is wrong, and what was left out */
} log_contents;

/* Reads a whole log out of memory. False, with the reason and nothing to free, if it is no log, or its header is
 * damaged. */
bool log_read_bytes(const void *bytes, size_t size, log_contents *out, log_problem *problem);

/* The same from a file, plain or gzip. One that cannot be read to its end is read as far as it can be, and that is told
 * as damage. */
bool log_read_file(const char *path, log_contents *out, log_problem *problem);

/* Reads a log piece by piece. What is read is added to *to, in the order of the file. NULL without host memory. */
typedef struct log_decoder log_decoder;
log_decoder *log_decoder_make(log_contents *to);

/* Reads what there is whole among the bytes that come next in the file; *used is how many they are, the others are to
 * be passed again, with more behind them. `last`: there will be no more. False, with the reason, if this is no log, or
 * without host memory. */
bool log_decoder_read(log_decoder *decoder, const void *bytes, size_t size, bool last, size_t *used,
                      log_problem *problem);
void log_decoder_free(log_decoder *decoder);

/* Whether a file that begins with this line is a binary log. */
bool log_begins_with(const char *line);

/* Puts records into the order of their times. False without host memory. */
bool log_sort(strata_log_record *records, size_t count);

void log_contents_free(log_contents *contents);

#endif
