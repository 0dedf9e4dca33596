/* Reading binary logs (docs/formats/slog.md).
 *
 * A log whose writer was killed ends with a partial batch, which is reported. Damage is skipped up to the next whole
 * batch and reported with its place. */
#ifndef STRATA_TOOLS_LOG_LOG_READER_H
#define STRATA_TOOLS_LOG_LOG_READER_H

#include "resources/logging/format.h"

#include <strata/logging.h>

enum {
    LOG_STACK_ROOM = 4097,
    LOG_DAMAGES = 8,
    LOG_READ_ROOM = 4 * LOG_BATCH_BYTES, /* a decoder always uses some of this many bytes */
};

typedef struct log_problem {
    char text[512]; /* "byte 1234: reason", or a reason */
} log_problem;

/* A log in memory. Tags are interned in this process. */
typedef struct log_contents {
    strata_log_record *records; /* in time order */
    size_t count;
    uint64_t late;       /* records behind younger ones */
    uint64_t dropped;    /* records that the writer lost */
    uint64_t torn;       /* bytes of a partial batch at the end */
    uint64_t damages;    /* damaged places */
    uint64_t created_ns; /* wall clock */
    uint32_t process;
    int32_t device;
    char stack[LOG_STACK_ROOM];      /* as text, escaped; "": not recorded */
    log_problem damage[LOG_DAMAGES]; /* the first damaged places: problem, and skipped bytes */
} log_contents;

/* Reads a whole log from memory. False, with the reason and nothing to free, if it is no log or its header is damaged.
 */
bool log_read_bytes(const void *bytes, size_t size, log_contents *out, log_problem *problem);

/* Reads a log file, plain or gzip, as far as possible; an incomplete read is reported as damage. */
bool log_read_file(const char *path, log_contents *out, log_problem *problem);

/* Reads a log in pieces. Records are appended to *to in file order. NULL without host memory. */
typedef struct log_decoder log_decoder;
log_decoder *log_decoder_make(log_contents *to);

/* Reads the whole batches of the next bytes of the file; *used is their length, the rest is passed again with more
 * bytes. `last`: no more will come. False, with the reason, if it is no log or without host memory. */
bool log_decoder_read(log_decoder *decoder, const void *bytes, size_t size, bool last, size_t *used,
                      log_problem *problem);
void log_decoder_free(log_decoder *decoder);

/* Whether a file with this first line is a binary log. */
bool log_begins_with(const char *line);

/* Sorts records by time. False without host memory. */
bool log_sort(strata_log_record *records, size_t count);

void log_contents_free(log_contents *contents);

#endif
