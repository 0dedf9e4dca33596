/* The writer of a logging layer: one thread that collects the lines of all rings, puts them into one order by their
 * stamps, and hands them to the sink.
 *
 * Each collection looks at how far the rings are, then at the clocks; stamps lie between that moment and the one
 * before, and so do their times. What is younger than 0.2 ms is left for the next one, because a record with an older
 * stamp may be under way; not so when a ring is half full, or somebody waits for all that there is.
 *
 * It sleeps for an interval, or for an eighth of one while there is much to collect, so that threads seldom have to
 * wake it. */
#ifndef STRATA_RESOURCES_LOGGING_WRITER_H
#define STRATA_RESOURCES_LOGGING_WRITER_H

#include "core/base/lock.h"
#include "core/base/timestamp.h"
#include "resources/logging/ring.h"
#include "resources/logging/sink.h"

typedef struct log_writer {
    log_rings rings;
    log_sink *sink;
    const strata_resource *resource; /* the layer, for the text of its stack */
    int device;
    uint64_t interval_ns;
    pthread_t thread;
    bool started;           /* and not ended; written by who starts or ends it */
    _Atomic bool stop;      /* set by who ends the layer, or by the process's exit */
    _Atomic uint64_t asked; /* for a collection of everything; counted up by any thread */
    strata_lock lock;
    pthread_cond_t finished;     /* `done` has changed */
    uint64_t done;               /* the last one that was asked for and made, UINT64_MAX once the thread has ended;
                                    guarded by lock */
    _Atomic bool failing;        /* the sink did not take the last records; the writer's, read by any */
    _Atomic uint64_t late, lost; /* records; the same: statistics */
    strata_timestamp_point first, last; /* the rest is the writer's alone */
    uint64_t newest_stamp, newest_ns;
    log_ring **heap; /* rings with lines to collect, the one with the oldest on top */
    size_t heap_count, heap_capacity;
    size_t batch_count;
    strata_log_record *batch; /* LOG_BATCH */
    struct log_writer *next;  /* all writers; guarded by the list's lock */
} log_writer;

/* Makes the rings and starts the thread. `writer` is zero but for resource, device, interval_ns and sink. Errors:
 * OUT_OF_HOST_MEMORY, with nothing left but the sink. */
strata_status log_writer_start(log_writer *writer, uint64_t lines);

/* Collects everything, ends the thread and closes the sink. No thread records any more. */
void log_writer_stop(log_writer *writer);

/* Collects everything that was recorded before, and waits for that, for at most `patience_s` seconds if it is not 0.
 * False if that was too short, or the caller is the writer. */
bool log_writer_flush(log_writer *writer, unsigned patience_s);

/* Records that are in no place where the layer promises them. Any thread. */
uint64_t log_writer_dropped(const log_writer *writer);

#endif
