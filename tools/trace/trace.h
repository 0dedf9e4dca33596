/* Recorded allocations, read completely and checked before the replay.
 *
 * Four formats, plain or gzip, recognised by their first line: Strata's CSV, the log of RMM's logging_resource_adaptor,
 * and both log formats of the layer `logging` (docs/replay.md). */
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
    uint32_t stream;  /* by first appearance */
    union {
        uint32_t block;
        uint32_t producer; /* TRACE_WAIT: the awaited stream */
    };
    uint32_t previous; /* row of the block, or TRACE_NONE */
    trace_op op;
    strata_access access; /* TRACE_USE */
} trace_row;

/* A reused id is a new block. */
typedef struct trace_block {
    uint64_t id; /* in the file: id or recorded address */
    uint64_t bytes;
    uint32_t alloc_row;
    uint32_t last_row; /* that names the block */
    bool freed;
} trace_block;

typedef struct trace {
    char *path;
    trace_row *rows;
    trace_block *blocks;
    uint32_t row_count;
    uint32_t block_count;
    uint32_t stream_count;
    uint32_t live_at_end;       /* never freed blocks */
    uint32_t recorded_failures; /* failed calls; not replayed */
    uint32_t recorded_strays;   /* frees and uses of blocks whose allocation the log lacks; not replayed */
    uint32_t recorded_unfreed;  /* frees that an RMM log lacks: the address was allocated again; added */
    uint64_t recorded_dropped;  /* records lost by the log */
    uint64_t recorded_torn;     /* of a partial batch or line at its end */
    bool recorded_cut;          /* the log's compressed file is cut off */
    uint64_t peak_live_bytes;   /* in the order of the file */
    uint64_t memory;            /* bytes of host memory that it takes */
} trace;

typedef struct trace_problem {
    char text[1024]; /* "file:line: reason" */
    bool too_large;  /* the trace needs more host memory than it may take */
} trace_problem;

/* Most bytes of host memory for traces, unless a caller or --max-memory says otherwise. */
#define TRACE_MEMORY (UINT64_C(2) << 30)

/* False, with the reason and nothing to free, if the trace is malformed or needs more than `most` bytes of host memory.
 */
bool trace_read_within(const char *path, uint64_t most, trace *out, trace_problem *problem);

/* Likewise, with TRACE_MEMORY. */
bool trace_read(const char *path, trace *out, trace_problem *problem);

void trace_free(trace *whole);

const char *trace_op_name(trace_op op);

#endif
