/* Where records go. Only the layer's writer calls a sink; after its end at the process's exit, the thread that ends the
 * layer. */
#ifndef STRATA_RESOURCES_LOGGING_SINK_H
#define STRATA_RESOURCES_LOGGING_SINK_H

#include <strata/logging.h>

#include <stdatomic.h>

enum { LOG_BATCH = 1024 }; /* most records in a write */

typedef struct log_sink log_sink;

typedef struct log_sink_ops {
    /* Writes records. Returns how many it took; if fewer, `error` is set. */
    size_t (*write)(log_sink *self, const strata_log_record *records, size_t count);
    /* Called after each collection: checks the reader. May be NULL. */
    void (*poll)(log_sink *self);
    /* Called with a built stack, when a caller waits for all records, perhaps none: does what was put off. May be NULL.
     */
    void (*flush)(log_sink *self);
    /* Called with a built stack, after the last record: flushes, completes what was begun; waits a second for a slow
     * reader. Again if there are records after the process's exit began. May be NULL. */
    void (*finish)(log_sink *self);
    /* Ends the sink; leaves nothing behind if the stack was never `built`. Any thread, after the writer's end. */
    void (*close)(log_sink *self, bool built);
} log_sink_ops;

struct log_sink {
    const log_sink_ops *ops;
    _Atomic uint64_t written_bytes; /* the writer's; any thread reads, relaxed */
    _Atomic uint64_t lost;          /* records taken, then overwritten; as above */
    _Atomic int error;              /* last errno; as above */
    const char *stack_text;         /* of the logged stack; set before the first write */
    const char *path;               /* of a file, else NULL; constant */
    uint64_t dropped;               /* records dropped so far, for files */
};

/* Opens a binary or CSV file, by the options. Errors: INVALID_VALUE, IO, BUSY, OUT_OF_HOST_MEMORY. */
strata_status log_sink_file(const strata_logging_options *options, int device, log_sink **out);

/* Keeps the newest `capacity` records. NULL without host memory. */
log_sink *log_sink_memory(uint64_t capacity);

/* Takes the oldest records out of a memory sink. Any thread. */
size_t log_sink_take(log_sink *sink, strata_log_record *records, size_t capacity);
bool log_sink_is_memory(const log_sink *sink);

/* Passes records to a callback; NULL discards them. Returns NULL without host memory. */
log_sink *log_sink_call(strata_log_sink_callback callback, void *data);

#endif
