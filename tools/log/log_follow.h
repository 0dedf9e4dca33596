/* `strata log --follow`: a log while it is written. */
#ifndef STRATA_TOOLS_LOG_LOG_FOLLOW_H
#define STRATA_TOOLS_LOG_LOG_FOLLOW_H

#include "tools/log/log_reader.h"

typedef struct log_follow_sink {
    /* Gets records as they come; those of one call are in the order of their times. False ends it: `stopped`. */
    bool (*records)(const log_contents *contents, void *data);
    /* What is to be said: a problem that ends it, or damage that was left out. */
    void (*say)(const char *path, const char *text, void *data);
    void *data;
} log_follow_sink;

typedef enum log_follow_end {
    LOG_FOLLOW_INTERRUPTED, /* SIGINT or SIGTERM: all that was there has been passed on, damage at the end told */
    LOG_FOLLOW_STOPPED,     /* by the sink */
    LOG_FOLLOW_REFUSED,     /* the file cannot be read, or is no log; it was said */
} log_follow_end;

/* Reads the plain file `path` from its beginning, and then what is added to it, and goes on with the next one when it
 * is rotated or begun anew. *damages is how many places were damaged, or had files that were removed before they were
 * read. */
log_follow_end log_follow(const char *path, const log_follow_sink *sink, uint64_t *damages);

#endif
