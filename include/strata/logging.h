/* `logging`: every allocation, free and use of a stack on record, and every wait for a stream through the runtime,
 * successes and failures alike, at a cost that production can bear.
 *
 *     logging(file=run.slog), async
 *     logging(file="trace-%p.csv", uses=off, duration=on), budget(limit=8GiB), async
 *
 * Each thread writes its records into a ring of its own, without a lock, a locked instruction or a word that another
 * thread writes, and never waits: a record that finds no room is counted in dropped_records and leaves a gap in its
 * thread's numbers. One thread of the layer collects them, about every 10 ms or when a ring gets full, puts them
 * into one order and hands them to a sink: a file, binary or CSV, memory, or a callback.
 *
 * Order. An allocation is stamped after it was made and a free before it is asked for, so in the merged order a free
 * stands before the allocation that got its memory. Records of calls that took longer than 0.2 ms can come after
 * younger ones; they are marked late and counted, and `strata log` puts them in their place.
 *
 * What is recorded survives a process that is killed up to what was collected last; a process that exits, and a stack
 * that ends, lose nothing. What exit handlers record that run after the library's own may be lost. In a forked child
 * nothing is recorded and no file touched.
 *
 * Where the layer stands says what it sees: the requests that pass it, with the addresses and sizes that are known
 * there, above or below a budget, with or without red zones. */
#ifndef STRATA_LOGGING_H
#define STRATA_LOGGING_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a record is about. */
typedef enum strata_log_kind {
    STRATA_LOG_ALLOCATE = 1,
    STRATA_LOG_DEALLOCATE,  /* asked for; complete at once with STRATA_LOG_FLAG_COMPLETE */
    STRATA_LOG_COMPLETED,   /* the second moment of a free: the bytes are free */
    STRATA_LOG_REUSED,      /* or: they were handed out again */
    STRATA_LOG_PREPARE_USE, /* a use is about to be submitted */
    STRATA_LOG_FINISH_USE,  /* it was, or with ACCESS_NONE it was not */
    STRATA_LOG_RECORD_USE,  /* a use that was submitted without a prepare */
    STRATA_LOG_REAP,
    STRATA_LOG_TRIM,
    STRATA_LOG_SYNCHRONIZE, /* the host waited for a stream through the runtime, and is done */
    STRATA_LOG_KIND_LIMIT
} strata_log_kind;

/* Bits of strata_log_record.flags. */
#define STRATA_LOG_FLAG_COMPLETE 0x1u /* a free that had finished when the call returned; no second record comes */
#define STRATA_LOG_FLAG_LATE     0x2u /* stands behind a younger record */
#define STRATA_LOG_FLAG_LAST     0x4u /* COMPLETED, REUSED: with these bytes the whole block is free */
#define STRATA_LOG_FLAG_DURATION 0x8u /* duration_ns was measured */

typedef struct strata_log_record {
    uint64_t wall_ns;      /* since 1970, as the system's clock said */
    uint64_t monotonic_ns; /* CLOCK_MONOTONIC: what the order goes by */
    uint64_t duration_ns;  /* of the call; 0 if it was not asked for. Units of 16 ticks, at most 2^32 of them */
    uint64_t thread;       /* from 1, of no other thread of the process; 0 where the file does not say */
    uint64_t number;       /* of the record in its thread, from 1; the numbers that are missing were dropped */
    uint64_t stream;       /* the handle as it was passed; ~0: STRATA_STREAM_GONE. Handles come back: */
    uint64_t address;      /* 0 where there is no block, as in a failed allocation */
    uint64_t requested;    /* bytes asked for. TRIM: the bytes to keep; REAP: the mode */
    uint64_t bytes;        /* usable. COMPLETED, REUSED, REAP, TRIM: how many became free */
    uint64_t alignment;    /* ALLOCATE: asked for; 0: none */
    uint64_t generation;   /* with the slot: which block; 0 where there is none */
    uint32_t slot;         /* 0xffffff for one beyond those that there can be: the identity is made up */
    uint32_t stream_id;    /* Strata's number of the stream, of no other stream while this one is known, or has work or
                              blocks: the low 16 bits, and in the high ones how many streams had it before. 0: not known
                              without asking the driver, which recording never does. */
    uint32_t thread_id;    /* as the system numbers it: gettid() */
    strata_tag tag;        /* as the allocation had it */
    int32_t device;        /* ordinal */
    uint32_t flags;        /* STRATA_LOG_FLAG_ bits */
    strata_log_kind kind;
    strata_status status;
    strata_access access; /* of a use */
    uint32_t reserved;    /* 0 */
} strata_log_record;

typedef enum strata_log_format {
    STRATA_LOG_AUTO = 0, /* CSV if the file's name ends with ".csv", else binary; a callback if there is one */
    STRATA_LOG_BINARY,   /* about 20 bytes a record: docs/formats/slog.md */
    STRATA_LOG_CSV,      /* RMM's columns first, ours after them: docs/layers/logging.md */
    STRATA_LOG_MEMORY,   /* the newest records, for strata_logging_take() */
    STRATA_LOG_NULL,     /* nowhere: what recording itself costs */
} strata_log_format;

/* What becomes of a file that has the name already, once the stack is built and there is something to write; before
 * that it is only locked. One that another log writes to is never taken: BUSY. */
typedef enum strata_log_existing {
    STRATA_LOG_EXISTING_AUTO = 0, /* ROTATE if `rotate` is set, else REFUSE */
    STRATA_LOG_EXISTING_REFUSE,   /* the layer is not made */
    STRATA_LOG_EXISTING_ROTATE,   /* it is renamed as if it were full */
    STRATA_LOG_EXISTING_REPLACE,  /* it is lost */
} strata_log_existing;

/* Receives records in their order, on the writer's thread, until the stack ends or the process exits. It may not end
 * the stack. The array is good during the call.
 */
typedef void (*strata_log_sink_callback)(const strata_log_record *records, size_t count, void *data);

typedef struct strata_logging_options {
    uint32_t size;     /* sizeof(strata_logging_options), or 0 */
    int format;        /* strata_log_format */
    int existing;      /* strata_log_existing */
    char file[256];    /* %p: the process, %d: the device, %n: 1 for the first log file of the
                          process, 2 for the second, ..., %%: a %. "": "strata-%p.%n.slog". "/dev/stdout" and
                          "/dev/stderr" are written to, not opened. */
    uint64_t ring;     /* records that a thread has room for, rounded up to a power of two, 64 to 1048576; 0: 4096 */
    uint64_t rotate;   /* bytes: a file that has reached them is renamed to FILE.1, that to FILE.2, ...; 0: never */
    uint64_t keep;     /* renamed files to keep; the oldest is removed; 0: 4 */
    uint64_t memory;   /* records that format=memory keeps; 0: 65536 */
    uint64_t interval; /* nanoseconds between two collections, at least 0.1 ms; 0: 10 ms */
    bool duration;     /* record how long each call took: one more stamp a record */
    int without_uses;  /* 1: no records of prepare_use, finish_use and record_use */
    int disabled;      /* 1: starts with `enabled` off */
    strata_log_sink_callback callback; /* the sink, if it is not NULL; `format` is AUTO then */
    void *callback_data;
} strata_logging_options;

/* Makes a logging layer for the device `ordinal`, to be built into a stack; a file is open when it returns.
 *
 * Values for strata_control: `records` made, `dropped_records` (no room in a ring, no ring yet, overwritten in memory,
 * or not written), `late_records`, `written_bytes`, `write_error` (the last errno of a file; 0 for none), and the
 * switch `enabled`, which can be set: while it is off, recording is a load and a branch.
 *
 * Errors: INVALID_VALUE (options that do not go together), IO (the file cannot be made, or is there already: the
 * message names it), BUSY (another log writes to it), OUT_OF_HOST_MEMORY, and what opening the device gives. */
STRATA_API strata_status strata_logging_create(int ordinal, const strata_logging_options *options,
                                               strata_resource **out);

/* Hands everything that was recorded before the call to the sinks of all logging layers from `resource` downwards, and
 * waits until that is done; files are then with the operating system. Any thread but the writer's. Errors:
 * INVALID_VALUE (NULL, or there is no such layer), IO (the message has the file and the reason; the records count as
 * dropped), FORKED. */
STRATA_API strata_status strata_logging_flush(strata_resource *resource);

/* Collects, then takes the oldest kept records out of the first layer with format=memory from `resource` downwards:
 * *count of them, at most `capacity`. Any thread. Errors: INVALID_VALUE (NULL, or there is no such layer), FORKED;
 * *count is 0 then. */
STRATA_API strata_status strata_logging_take(strata_resource *resource, strata_log_record *records, size_t capacity,
                                             size_t *count);

#ifdef __cplusplus
}
#endif

#endif
