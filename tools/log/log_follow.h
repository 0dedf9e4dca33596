/* `strata log --follow`: reading a log while it is written. */
#ifndef STRATA_TOOLS_LOG_LOG_FOLLOW_H
#define STRATA_TOOLS_LOG_LOG_FOLLOW_H

#include "tools/log/log_reader.h"

typedef struct log_follow_sink {
    /* Records of one call are in time order. False ends the following: `stopped`. */
    bool (*records)(const log_contents *contents, void *data);
    /* A fatal problem, or skipped damage. */
    void (*say)(const char *path, const char *text, void *data);
    void *data;
} log_follow_sink;

typedef enum log_follow_end {
    LOG_FOLLOW_INTERRUPTED, /* SIGINT or SIGTERM: everything was passed on, damage at the end reported */
    LOG_FOLLOW_STOPPED,     /* by the sink */
    LOG_FOLLOW_REFUSED,     /* cannot be read or is no log; reported */
} log_follow_end;

/* Reads the plain file `path`, what is appended, and the next file after a rotation. *damages counts damaged places,
 * and files removed before they were read. */
log_follow_end log_follow(const char *path, const log_follow_sink *sink, uint64_t *damages);

#endif
