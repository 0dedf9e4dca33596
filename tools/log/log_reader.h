/* Reading binary logs (docs/formats/slog.md).
 *
 * The partial batch of a killed writer is reported. Damage is skipped up to the next whole batch, and reported with its
 * place. */
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
    bool too_large; /* the records need more host memory than they may take */
} log_problem;

/* Most bytes of host memory for records, unless a caller or --max-memory says otherwise. */
#define LOG_MEMORY (UINT64_C(2) << 30)

/* Tags are interned in this process. */
typedef struct log_contents {
    strata_log_record *records; /* in time order */
    size_t count;
    uint64_t late;       /* records behind younger ones */
    uint64_t dropped;    /* lost by the writer */
    uint64_t torn;       /* of a partial batch at the end */
    uint64_t damages;    /* with the end of a compressed file that is cut off */
    bool cut;            /* it is */
    uint64_t created_ns; /* wall clock */
    uint32_t process;
    int32_t device;
    char stack[LOG_STACK_ROOM];      /* escaped; "": not recorded */
    log_problem damage[LOG_DAMAGES]; /* the first ones: problem, and skipped bytes */
} log_contents;

/* False, with the reason and nothing to free, if it is no log or its header is damaged. */
bool log_read_bytes(const void *bytes, size_t size, log_contents *out, log_problem *problem);

/* Reads a plain or gzip file as far as possible; an incomplete read is reported as damage. Records and their sorting
 * may take `most` bytes of host memory. */
bool log_read_file(const char *path, uint64_t most, log_contents *out, log_problem *problem);

/* Likewise from the beginning of an open file. */
struct line_reader;
bool log_read_opened(struct line_reader *file, uint64_t most, log_contents *out, log_problem *problem);

/* Reads a log in pieces, appending up to `most` bytes of records to *to in file order. NULL without host memory. */
typedef struct log_decoder log_decoder;
log_decoder *log_decoder_make(log_contents *to, uint64_t most);

/* Reads the whole batches of the file's next bytes; the caller passes bytes beyond *used again, with more. `last`: no
 * more will come. False, with the reason, if it is no log or without host memory. */
bool log_decoder_read(log_decoder *decoder, const void *bytes, size_t size, bool last, size_t *used,
                      log_problem *problem);
void log_decoder_free(log_decoder *decoder);

/* Whether a file is a log, by its first line. */
bool log_begins_with(const char *line);

/* Sorts by time. False without host memory. */
bool log_sort(strata_log_record *records, size_t count);

/* Likewise; false, with the reason, also if records and sorting need more than `most` bytes. */
bool log_sort_within(strata_log_record *records, size_t count, uint64_t most, log_problem *problem);

void log_contents_free(log_contents *contents);

#endif
