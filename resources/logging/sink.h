/* Where collected records go. A sink is called by one thread at a time, the layer's writer. */
#ifndef STRATA_RESOURCES_LOGGING_SINK_H
#define STRATA_RESOURCES_LOGGING_SINK_H

#include <strata/logging.h>

#include <stdatomic.h>

enum { LOG_BATCH = 1024 }; /* records that a sink is given at most at once */

typedef struct log_sink log_sink;

typedef struct log_sink_ops {
    /* Takes the records; returns how many it took, fewer with `error` set. */
    size_t (*write)(log_sink *self, const strata_log_record *records, size_t count);
    /* Behind each collection, whether there was something to write or not: looks after who reads. NULL: nobody does. */
    void (*poll)(log_sink *self);
    /* The stack is built and somebody waits for all that was recorded, if only nothing: what the sink has put off is
     * done. NULL: nothing is. */
    void (*flush)(log_sink *self);
    /* The stack is built, and no more comes, or the process exits: does what settle does, and ends what has begun.
     * Waits for a slow reader for a second. NULL: nothing is to be ended. */
    void (*finish)(log_sink *self);
    /* Frees the sink. Without a stack that was `built` it leaves nothing behind. Any thread: the writer has ended. */
    void (*close)(log_sink *self, bool built);
} log_sink_ops;

struct log_sink {
    const log_sink_ops *ops;
    _Atomic uint64_t written_bytes; /* written by the writer, read by any thread: statistics */
    _Atomic uint64_t lost;          /* records that were taken and then overwritten, the same */
    _Atomic int error;              /* the last errno, 0 for none; the same */
    const char *stack_text;         /* before the first write: of the stack that is recorded */
    const char *path;               /* of a file, NULL for others; constant */
    uint64_t dropped;               /* records dropped before this write, in all: for files to tell */
};

/* A file, binary or CSV. `path` is as the options say it. Errors: INVALID_VALUE, IO, BUSY, OUT_OF_HOST_MEMORY. */
strata_status log_sink_file(const strata_logging_options *options, int device, log_sink **out);

/* The newest `capacity` records, in memory. NULL without host memory. */
log_sink *log_sink_memory(uint64_t capacity);

/* Takes the oldest records out of such a sink; 0 if it is another kind of sink. Any thread. */
size_t log_sink_take(log_sink *sink, strata_log_record *records, size_t capacity);
bool log_sink_is_memory(const log_sink *sink);

/* A callback, or NULL for nowhere. NULL without host memory. */
log_sink *log_sink_call(strata_log_sink_callback callback, void *data);

#endif
