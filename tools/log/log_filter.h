/* Filters: the wanted records of a log. */
#ifndef STRATA_TOOLS_LOG_LOG_FILTER_H
#define STRATA_TOOLS_LOG_LOG_FILTER_H

#include <strata/logging.h>

/* Resolved when the log's first record is known. */
typedef struct log_moment {
    enum { LOG_MOMENT_NONE, LOG_MOMENT_SINCE_START, LOG_MOMENT_OF_DAY, LOG_MOMENT_WALL } kind;
    uint64_t ns;
} log_moment;

typedef struct log_filter {
    unsigned kinds; /* bits; 0: all */
    bool failed;
    const char *tag;    /* NULL: any */
    const char *stream; /* 0x55aa, "gone", or a stream id; NULL: any */
    bool has_thread;
    uint64_t thread; /* Strata's number or the system's */
    uint64_t min_size;
    log_moment from, to;
    uint64_t from_ns, to_ns; /* wall clock; set by log_filter_begin */
} log_filter;

/* "allocate", "free,complete", ... False for an unknown word. */
bool log_filter_read_kinds(const char *text, unsigned *kinds);

/* "1.5s" or "20ms" (since the first record), "13:05:59.25" (on its day, local time) or "2026-01-31T13:05:59.25" (local
 * time). False for another text. */
bool log_filter_read_moment(const char *text, log_moment *out);

/* Resolves the moments by the first record's wall clock. */
void log_filter_begin(log_filter *choice, uint64_t first_wall_ns);

bool log_filter_takes(const log_filter *choice, const strata_log_record *record);

#endif
