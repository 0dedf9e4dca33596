/* The writer: a thread that collects the lines of all rings, merges them by stamp, and passes them to the sink.
 *
 * A collection reads how far each ring is, then the clocks; its stamps lie between the last collection and this one,
 * and so do their times. Lines younger than 0.2 ms wait for the next one, as older stamps may be under way, unless a
 * ring is half full or a thread waits for everything. The writer sleeps for an interval, an eighth of it under load, so
 * threads seldom wake it. */
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
    bool started;           /* until joined; written by the starting or stopping thread */
    _Atomic bool stop;      /* at the layer's destroy or the process's exit */
    _Atomic uint64_t asked; /* requests for a full collection; any thread */
    strata_lock lock;
    pthread_cond_t finished;            /* signals that `done` has changed */
    uint64_t done;                      /* last request served, UINT64_MAX after the thread's end; guarded by lock */
    _Atomic bool failing;               /* the sink refused records; any thread reads */
    _Atomic uint64_t late, lost;        /* records; any thread reads, relaxed */
    strata_timestamp_point first, last; /* this and the rest: writer only */
    uint64_t newest_stamp, newest_ns;
    log_ring **heap; /* rings with lines, oldest on top */
    size_t heap_count, heap_capacity;
    size_t batch_count;
    strata_log_record *batch; /* LOG_BATCH records */
    struct log_writer *next;  /* list of writers; guarded by its lock */
} log_writer;

/* `writer` is zero except resource, device, interval_ns and sink. Error: OUT_OF_HOST_MEMORY, after which the caller
 * still has the sink. */
strata_status log_writer_start(log_writer *writer, uint64_t lines);

/* Collects everything, joins the thread, closes the sink. No thread records any more. */
void log_writer_stop(log_writer *writer);

/* Waits until all earlier records are collected, at most `patience_s` seconds (0: no limit). False after a timeout or
 * on the writer's thread. */
bool log_writer_flush(log_writer *writer, unsigned patience_s);

/* Records that are lost. Any thread. */
uint64_t log_writer_dropped(const log_writer *writer);

#endif
