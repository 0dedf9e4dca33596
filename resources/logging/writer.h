/* The writer: a thread that collects the lines of all rings, merges them by stamp, and passes them to the sink.
 *
 * A collection reads each ring's head, then the clocks, so its stamps are older than these. Lines younger than 0.2 ms
 * wait for the next one, as older stamps may be under way, unless a ring is half full or a thread waits. Stamps since
 * the last collection get times between the clocks of both; those of lines that waited are older. The writer sleeps for
 * an interval, an eighth of it under load, so threads seldom wake it. */
#ifndef STRATA_RESOURCES_LOGGING_WRITER_H
#define STRATA_RESOURCES_LOGGING_WRITER_H

#include "core/base/lock.h"
#include "core/base/timestamp.h"
#include "resources/logging/ring.h"
#include "resources/logging/sink.h"

#include <signal.h>

typedef struct log_writer {
    log_rings rings;
    log_sink *sink;
    const strata_resource *resource; /* the layer */
    int device;
    uint64_t interval_ns;
    pthread_t thread;
    bool started;           /* until joined; written by the starting or stopping thread, at exit under writers_lock */
    sigset_t program_mask;  /* of the thread that started this one */
    uint64_t look_ns;       /* when the writer looks at the other threads; writer only */
    _Atomic bool stop;      /* at the layer's destroy or the process's exit */
    _Atomic uint64_t asked; /* requests for a full collection; any thread */
    strata_lock lock;
    pthread_cond_t finished;     /* `done` changed */
    uint64_t done;               /* last request served, UINT64_MAX after the thread's end; the writer's, under lock */
    uint64_t lost_when_done;     /* `lost` then; the writer's, under lock */
    _Atomic uint64_t late, lost; /* records; `lost`: refused by the sink; any thread, relaxed */
    strata_timestamp_point first, last; /* this and the rest: writer only */
    uint64_t newest_stamp, newest_ns;
    size_t heap_count; /* rings with lines in rings.heap, oldest on top */
    size_t batch_count;
    strata_log_record *batch;
    struct log_writer *next; /* list of writers; guarded by writers_lock */
} log_writer;

/* Starts the thread. `writer` is zeroed except resource, device, interval_ns and sink. OUT_OF_HOST_MEMORY leaves the
 * sink to the caller. */
strata_status log_writer_start(log_writer *writer, uint64_t lines);

/* Collects everything, joins the thread, closes the sink. Requires that no thread records. */
void log_writer_stop(log_writer *writer);

/* Waits for all earlier records, at most `patience_s` seconds (0: no limit). *lost: records that the sink refused since
 * the last served request. False after a timeout or on the writer's thread. */
bool log_writer_flush(log_writer *writer, unsigned patience_s, uint64_t *lost);

/* Records that no sink has. Any thread. */
uint64_t log_writer_dropped(const log_writer *writer);

#endif
