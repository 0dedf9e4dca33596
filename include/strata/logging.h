/* `logging`: records every allocation, free and use that passes the layer, with addresses and sizes at its position,
 * every wait for a stream through the runtime, and what happens to graphs, successful or not (docs/layers/logging.md).
 *
 * Each thread writes records into its own ring and never waits. A record without room counts in dropped_records and
 * leaves a gap in its thread's numbers. A writer thread collects the records, merges them into one order, and passes
 * them to a sink: a binary or CSV file, memory, or a callback.
 *
 * An allocation is stamped after it was made, a free before it is requested, so a free precedes the allocation that
 * reuses its memory. A record of a call of more than 0.2 ms can follow younger ones: it is marked late and counted.
 *
 * A killed process loses the records since the last collection; a process that exits and a stack that ends only what
 * exit handlers record after the library's own. A forked child records nothing and touches no file. */
#ifndef STRATA_LOGGING_H
#define STRATA_LOGGING_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_log_kind {
    STRATA_LOG_ALLOCATE = 1,
    STRATA_LOG_DEALLOCATE, /* requested */
    STRATA_LOG_COMPLETED,  /* the bytes are free */
    STRATA_LOG_REUSED,     /* the bytes were reused */
    STRATA_LOG_PREPARE_USE,
    STRATA_LOG_FINISH_USE, /* submitted, or not (ACCESS_NONE) */
    STRATA_LOG_RECORD_USE, /* submitted without a prepare */
    STRATA_LOG_REAP,
    STRATA_LOG_TRIM,
    STRATA_LOG_SYNCHRONIZE, /* the host waited for a stream */
    STRATA_LOG_CAPTURE,     /* ended: of this and the three below, `tag` is the graph's name */
    STRATA_LOG_LAUNCH,      /* of a graph */
    STRATA_LOG_UPLOAD,
    STRATA_LOG_UPDATE, /* by another capture */
    STRATA_LOG_KIND_LIMIT
} strata_log_kind;

/* Bits of strata_log_record.flags. */
#define STRATA_LOG_FLAG_COMPLETE 0x1u /* the free was complete on return; no second record follows */
#define STRATA_LOG_FLAG_LATE     0x2u /* follows a younger record */
#define STRATA_LOG_FLAG_LAST     0x4u /* COMPLETED, REUSED: all of the block is free */
#define STRATA_LOG_FLAG_DURATION 0x8u

typedef struct strata_log_record {
    uint64_t wall_ns;      /* since 1970 */
    uint64_t monotonic_ns; /* CLOCK_MONOTONIC; the order */
    uint64_t duration_ns;  /* of the call, in steps of 16 ticks, at most 2^32 of them; 0: not measured */
    uint64_t thread;       /* from 1, unique in the process; 0: not in the file */
    uint64_t number;       /* in its thread, from 1; missing ones were dropped */
    uint64_t stream;       /* a handle; ~0: STRATA_STREAM_GONE. Handles are reused */
    uint64_t address;      /* 0: no block */
    uint64_t requested;    /* bytes; TRIM: bytes to keep; REAP: the mode; of a graph: its nodes */
    uint64_t bytes;      /* usable; COMPLETED, REUSED, REAP, TRIM: that became free; of a graph: its pool's segments */
    uint64_t alignment;  /* ALLOCATE: requested; 0: none */
    uint64_t generation; /* with the slot: the block; 0: none */
    uint32_t slot;       /* 0xffffff: out of range, the identity is made up */
    uint32_t stream_id;  /* Strata's number of the stream: low 16 bits, unique while it is known or has work or blocks;
                            high bits count earlier streams with them. 0: unknown without a driver query */
    uint32_t thread_id;  /* gettid() */
    strata_tag tag;
    int32_t device;
    uint32_t flags; /* STRATA_LOG_FLAG_ */
    strata_log_kind kind;
    strata_status status;
    strata_access access; /* of a use */
    uint32_t reserved;
} strata_log_record;

typedef enum strata_log_format {
    STRATA_LOG_AUTO = 0, /* a callback if given; CSV if the file name ends with ".csv"; else binary */
    STRATA_LOG_BINARY,   /* about 20 bytes a record; docs/formats/slog.md */
    STRATA_LOG_CSV,      /* RMM's columns, then Strata's */
    STRATA_LOG_MEMORY,   /* the newest, for strata_logging_take() */
    STRATA_LOG_NULL,     /* no output */
} strata_log_format;

/* What happens to an existing file of that name when the first record is written; until then it is only locked. A file
 * that another log writes to is never taken: BUSY. */
typedef enum strata_log_existing {
    STRATA_LOG_EXISTING_AUTO = 0, /* ROTATE if `rotate` is set, else REFUSE */
    STRATA_LOG_EXISTING_REFUSE,
    STRATA_LOG_EXISTING_ROTATE, /* as if it were full */
    STRATA_LOG_EXISTING_REPLACE,
} strata_log_existing;

/* Receives records in order until the stack ends, on the writer thread; while the process exits the writer ends, and
 * later records come on the thread that ends the stack. Must not end the stack. The array is valid during the call. */
typedef void (*strata_log_sink_callback)(const strata_log_record *records, size_t count, void *data);

typedef struct strata_logging_options {
    uint32_t size;     /* sizeof(strata_logging_options), or 0 */
    int format;        /* strata_log_format */
    int existing;      /* strata_log_existing */
    char file[256];    /* %p: process, %d: device, %n: number of the log file in the process, %%: a %. "":
                          "strata-%p.%n.slog". "/dev/stdout", "/dev/stderr" and "/dev/fd/N" are written to, not opened;
                          a symbolic link is refused. A relative path means the current folder of the call that makes
                          the layer. */
    uint64_t ring;     /* records of room for each thread, rounded up to a power of two, 64 to 1048576; 0: 4096 */
    uint64_t rotate;   /* bytes: a file of this size is renamed to FILE.1, FILE.1 to FILE.2, ...; 0: never */
    uint64_t keep;     /* renamed files to keep; 0: 4 */
    uint64_t memory;   /* records that format=memory keeps; 0: 65536 */
    uint64_t interval; /* nanoseconds between collections, at least 0.1 ms; 0: 10 ms */
    bool duration;     /* record the duration of each call: one more timestamp a record */
    int without_uses;  /* 1: no records of prepare_use, finish_use and record_use */
    int disabled;      /* 1: `enabled` is off at first */
    strata_log_sink_callback callback; /* the sink, if not NULL; then `format` is AUTO */
    void *callback_data;
    uint64_t mode; /* permission bits of files that are made, such as 0640; 0: 0600 */
    bool internal; /* also record reaps and trims that the program did not ask for */
} strata_logging_options;

/* Makes the layer; a file is open when the call returns.
 *
 * Values: `records`, `dropped_records` (no room in a ring, no ring yet, overwritten in memory, or not written),
 * `late_records`, `written_bytes`, `write_error` (last errno of a file; 0: none), and the settable switch `enabled`:
 * off, recording costs a load and a branch.
 *
 * Errors: INVALID_VALUE (incompatible options), IO (the file, named in the message, cannot be made or exists), BUSY
 * (another log writes to it), OUT_OF_HOST_MEMORY (also: no thread can be started). */
STRATA_API strata_status strata_logging_create(int ordinal, const strata_logging_options *options,
                                               strata_resource **out);

/* Waits until all records made before the call are with the sinks of all logging layers from `resource` downwards,
 * files with the operating system. Not on the writer. Errors: INVALID_VALUE (no such layer), IO (records since the last
 * flush could not be written: file, how many and reason in the message; they count as dropped). */
STRATA_API strata_status strata_logging_flush(strata_resource *resource);

/* Collects, then takes up to `capacity` of the oldest records from the first layer with format=memory from `resource`
 * downwards; *count: how many. Errors: INVALID_VALUE (no such layer); *count is then 0. */
STRATA_API strata_status strata_logging_take(strata_resource *resource, strata_log_record *records, size_t capacity,
                                             size_t *count);

#ifdef __cplusplus
}
#endif

#endif
