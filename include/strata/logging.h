/* `logging`: records every allocation, free and use of a stack, and every wait for a stream through the runtime,
 * successful or not, at a cost suited for production.
 *
 *     logging(file=run.slog), async
 *     logging(file="trace-%p.csv", uses=off, duration=on), budget(limit=8GiB), async
 *
 * Each thread writes records into its own ring, without locks, atomic read-modify-write instructions or shared words,
 * and never waits. A record without room is counted in dropped_records and leaves a gap in its thread's numbers. A
 * writer thread of the layer collects the records, about every 10 ms or when a ring fills, merges them into one order,
 * and passes them to a sink: a binary or CSV file, memory, or a callback.
 *
 * Order. An allocation is stamped after it was made, a free before it is requested, so a free precedes the allocation
 * that reuses its memory. A record of a call of more than 0.2 ms can follow younger records; it is marked late and
 * counted, and `strata log` sorts it.
 *
 * A killed process loses the records since the last collection. A process that exits and a stack that ends lose none,
 * except what exit handlers record after the library's own. A forked child records nothing and touches no file.
 *
 * The layer records the requests that pass it, with the addresses and sizes at its position: above or below a budget,
 * with or without red zones. */
#ifndef STRATA_LOGGING_H
#define STRATA_LOGGING_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a record is about. */
typedef enum strata_log_kind {
    STRATA_LOG_ALLOCATE = 1,
    STRATA_LOG_DEALLOCATE,  /* requested; complete at once with STRATA_LOG_FLAG_COMPLETE */
    STRATA_LOG_COMPLETED,   /* the free is complete: the bytes are free */
    STRATA_LOG_REUSED,      /* the bytes were reused */
    STRATA_LOG_PREPARE_USE, /* a use will be submitted */
    STRATA_LOG_FINISH_USE,  /* it was submitted, or not, with ACCESS_NONE */
    STRATA_LOG_RECORD_USE,  /* a use submitted without a prepare */
    STRATA_LOG_REAP,
    STRATA_LOG_TRIM,
    STRATA_LOG_SYNCHRONIZE, /* the host waited for a stream through the runtime */
    STRATA_LOG_KIND_LIMIT
} strata_log_kind;

/* Bits of strata_log_record.flags. */
#define STRATA_LOG_FLAG_COMPLETE 0x1u /* the free was complete when the call returned; no second record follows */
#define STRATA_LOG_FLAG_LATE     0x2u /* follows a younger record */
#define STRATA_LOG_FLAG_LAST     0x4u /* COMPLETED, REUSED: the whole block is free */
#define STRATA_LOG_FLAG_DURATION 0x8u /* duration_ns was measured */

typedef struct strata_log_record {
    uint64_t wall_ns;      /* since 1970, by the system clock */
    uint64_t monotonic_ns; /* CLOCK_MONOTONIC; defines the order */
    uint64_t duration_ns;  /* of the call; 0: not measured. In units of 16 ticks, at most 2^32 of them */
    uint64_t thread;       /* from 1, unique in the process; 0: not in the file */
    uint64_t number;       /* of the record in its thread, from 1; missing numbers were dropped */
    uint64_t stream;       /* the handle; ~0: STRATA_STREAM_GONE. Handles are reused */
    uint64_t address;      /* 0: no block, as in a failed allocation */
    uint64_t requested;    /* bytes requested. TRIM: bytes to keep; REAP: the mode */
    uint64_t bytes;        /* usable bytes. COMPLETED, REUSED, REAP, TRIM: bytes that became free */
    uint64_t alignment;    /* ALLOCATE: requested; 0: none */
    uint64_t generation;   /* with the slot: the block; 0: none */
    uint32_t slot;         /* 0xffffff: out of range; the identity is made up */
    uint32_t stream_id; /* Strata's number of the stream: low 16 bits, unique while the stream is known or has work or
                           blocks; high bits count earlier streams with it. 0: unknown without a driver query */
    uint32_t thread_id; /* of the system: gettid() */
    strata_tag tag;     /* of the allocation */
    int32_t device;     /* ordinal */
    uint32_t flags;     /* STRATA_LOG_FLAG_ bits */
    strata_log_kind kind;
    strata_status status;
    strata_access access; /* of a use */
    uint32_t reserved;    /* 0 */
} strata_log_record;

typedef enum strata_log_format {
    STRATA_LOG_AUTO = 0, /* CSV if the file name ends with ".csv", else binary; a callback if there is one */
    STRATA_LOG_BINARY,   /* about 20 bytes a record; docs/formats/slog.md */
    STRATA_LOG_CSV,      /* RMM's columns, then Strata's; docs/layers/logging.md */
    STRATA_LOG_MEMORY,   /* the newest records, for strata_logging_take() */
    STRATA_LOG_NULL,     /* no output: measures the cost of recording */
} strata_log_format;

/* What happens to an existing file of that name, when the first record is written; until then it is only locked. A file
 * that another log writes to is never taken: BUSY. */
typedef enum strata_log_existing {
    STRATA_LOG_EXISTING_AUTO = 0, /* ROTATE if `rotate` is set, else REFUSE */
    STRATA_LOG_EXISTING_REFUSE,   /* the layer is not made */
    STRATA_LOG_EXISTING_ROTATE,   /* renamed as if it were full */
    STRATA_LOG_EXISTING_REPLACE,  /* overwritten */
} strata_log_existing;

/* Receives records in order, on the writer thread, until the stack ends or the process exits. Must not end the stack.
 * The array is valid during the call. */
typedef void (*strata_log_sink_callback)(const strata_log_record *records, size_t count, void *data);

typedef struct strata_logging_options {
    uint32_t size;     /* sizeof(strata_logging_options), or 0 */
    int format;        /* strata_log_format */
    int existing;      /* strata_log_existing */
    char file[256];    /* %p: process, %d: device, %n: number of the log file in the process, %%: a %. "":
                          "strata-%p.%n.slog". "/dev/stdout" and "/dev/stderr" are written to, not opened. */
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
} strata_logging_options;

/* Makes a logging layer for the device with this ordinal, to be built into a stack; a file is open when the call
 * returns.
 *
 * Values for strata_control: `records`, `dropped_records` (no room in a ring, no ring yet, overwritten in memory, or
 * not written), `late_records`, `written_bytes`, `write_error` (last errno of a file; 0: none), and the settable switch
 * `enabled`: while it is off, recording costs a load and a branch.
 *
 * Errors: INVALID_VALUE (incompatible options), IO (the file cannot be made or exists: the message names it), BUSY
 * (another log writes to it), OUT_OF_HOST_MEMORY, and those of opening the device. */
STRATA_API strata_status strata_logging_create(int ordinal, const strata_logging_options *options,
                                               strata_resource **out);

/* Passes all records made before the call to the sinks of all logging layers from `resource` downwards and waits until
 * that is done; files are then with the operating system. Any thread except the writer. Errors: INVALID_VALUE (NULL, or
 * no such layer), IO (the message has file and reason; the records count as dropped), FORKED. */
STRATA_API strata_status strata_logging_flush(strata_resource *resource);

/* Collects, then takes up to `capacity` of the oldest records from the first layer with format=memory from `resource`
 * downwards; *count receives how many. Any thread. Errors: INVALID_VALUE (NULL, or no such layer), FORKED; *count is
 * then 0. */
STRATA_API strata_status strata_logging_take(strata_resource *resource, strata_log_record *records, size_t capacity,
                                             size_t *count);

#ifdef __cplusplus
}
#endif

#endif
