/* Recorded allocations, read completely and checked before the replay.
 *
 * Four file formats, plain or gzip, recognised by their first line: Strata's CSV, the log of RMM's
 * logging_resource_adaptor, and both log formats of the layer `logging` (docs/replay.md). */
#ifndef STRATA_TOOLS_TRACE_TRACE_H
#define STRATA_TOOLS_TRACE_TRACE_H

#include <strata/block.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACE_STREAM_LIMIT = 4096 };

#define TRACE_NONE UINT32_MAX

typedef enum trace_op {
    TRACE_ALLOC,
    TRACE_FREE,
    TRACE_USE,
    TRACE_WAIT, /* a stream waits for another one's work so far */
    TRACE_SYNC, /* the host waits for a stream's work so far */
} trace_op;

typedef struct trace_row {
    uint64_t time_us; /* since the first row */
    uint32_t line;    /* in the file */
    uint32_t stream;  /* number of the stream, by first appearance */
    union {
        uint32_t block;    /* number of the block */
        uint32_t producer; /* TRACE_WAIT: number of the awaited stream */
    };
    uint32_t previous; /* previous row of the same block, or TRACE_NONE */
    trace_op op;
    strata_access access; /* TRACE_USE */
} trace_row;

/* One allocation. A reused id is a new block. */
typedef struct trace_block {
    uint64_t id; /* in the file: the id or the recorded address */
    uint64_t bytes;
    uint32_t alloc_row;
    uint32_t last_row; /* last row that names the block */
    bool freed;
} trace_block;

typedef struct trace {
    char *path;
    trace_row *rows;
    trace_block *blocks;
    uint32_t row_count;
    uint32_t block_count;
    uint32_t stream_count;
    uint32_t live_at_end;       /* blocks that are never freed */
    uint32_t recorded_failures; /* calls that failed in the recording; not replayed */
    uint32_t recorded_strays;   /* frees and uses of blocks allocated before the log; not replayed */
    uint64_t recorded_dropped;  /* records that the log lost */
    uint64_t recorded_torn;     /* bytes of a partial batch at its end */
    uint64_t peak_live_bytes;   /* in the order of the file */
} trace;

typedef struct trace_problem {
    char text[1024]; /* "file:line: reason" */
} trace_problem;

/* Reads and checks a trace. False, with the reason and nothing to free, if it is malformed. */
bool trace_read(const char *path, trace *out, trace_problem *problem);

void trace_free(trace *whole);

const char *trace_op_name(trace_op op);

#endif
