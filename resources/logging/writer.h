/* The writer of a logging layer: a thread that collects the lines of all rings, merges them by stamp, and passes them
 * to the sink.
 *
 * A collection first reads how far each ring is, then the clocks; all stamps lie between the last collection and this
 * one, and so do their times. Lines younger than 0.2 ms wait for the next collection, because a line with an older
 * stamp may still be under way. They do not wait if a ring is half full, or if a thread waits for everything.
 *
 * The writer sleeps for an interval, or for an eighth of it while there is much to collect, so threads seldom wake it.
 */
#ifndef STRATA_RESOURCES_LOGGING_WRITER_H
#define STRATA_RESOURCES_LOGGING_WRITER_H

#include "core/base/lock.h"
#include "core/base/timestamp.h"
#include "resources/logging/ring.h"
#include "resources/logging/sink.h"

typedef struct log_writer {
    log_rings rings;
    log_sink *sink;
    const strata_resource *resource; /* the layer, for its stack's text */
    int device;
    uint64_t interval_ns;
    pthread_t thread;
    bool started;           /* until joined; written by the thread that starts or stops the writer */
    _Atomic bool stop;      /* set when the layer is destroyed or the process exits */
    _Atomic uint64_t asked; /* requests for a full collection; any thread */
    strata_lock lock;
    pthread_cond_t finished;     /* signals that `done` has changed */
    uint64_t done;               /* last request that was served, UINT64_MAX after the thread's end; guarded by lock */
    _Atomic bool failing;        /* the sink refused the last records; written by the writer, any thread reads */
    _Atomic uint64_t late, lost; /* records; written by the writer, any thread reads, relaxed */
    strata_timestamp_point first, last; /* this and the rest: writer only */
    uint64_t newest_stamp, newest_ns;
    log_ring **heap; /* rings with lines to collect; the oldest line on top */
    size_t heap_count, heap_capacity;
    size_t batch_count;
    strata_log_record *batch; /* LOG_BATCH records */
    struct log_writer *next;  /* list of writers; guarded by its lock */
} log_writer;

/* Makes the rings and starts the thread. `writer` is zero except resource, device, interval_ns and sink. Error:
 * OUT_OF_HOST_MEMORY; the caller still owns the sink. */
strata_status log_writer_start(log_writer *writer, uint64_t lines);

/* Collects everything, ends the thread and closes the sink. No thread may record any more. */
void log_writer_stop(log_writer *writer);

/* Collects everything recorded before the call and waits for that, at most `patience_s` seconds (0: without limit).
 * False after a timeout, or if the caller is the writer. */
bool log_writer_flush(log_writer *writer, unsigned patience_s);

/* Records that are lost. Any thread. */
uint64_t log_writer_dropped(const log_writer *writer);

#endif
