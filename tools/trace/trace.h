/* Recorded allocations: what a trace file says, read completely and checked before anything is replayed.
 *
 * Four kinds of file, plain or gzip, told apart by their first line: Strata's own CSV, the log of RMM's
 * logging_resource_adaptor, and the two kinds of log that the layer `logging` writes. docs/replay.md describes them. */
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
    TRACE_WAIT, /* a stream waits for what another one was given so far */
    TRACE_SYNC, /* the host waits for what a stream was given so far */
} trace_op;

typedef struct trace_row {
    uint64_t time_us; /* since the first row */
    uint32_t line;    /* in the file */
    uint32_t stream;  /* number of the stream, in order of first appearance */
    union {
        uint32_t block;    /* number of the block */
        uint32_t producer; /* TRACE_WAIT: number of the stream that is waited for */
    };
    uint32_t previous; /* the row before this one that names the same block, or TRACE_NONE */
    trace_op op;
    strata_access access; /* TRACE_USE */
} trace_row;

/* One allocation. An identity of the file that is allocated again after its free is another block. */
typedef struct trace_block {
    uint64_t id; /* as in the file: the id, or the address that was recorded */
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
    uint32_t live_at_end;       /* blocks that the trace never frees */
    uint32_t recorded_failures; /* calls that had failed when the trace was recorded; they are not replayed */
    uint32_t recorded_strays;   /* frees and uses of blocks that the log does not begin with; the same */
    uint64_t recorded_dropped;  /* records that a log had no room for, */
    uint64_t recorded_torn;     /* and bytes at its end that are a part of a batch: they are in no row */
    uint64_t peak_live_bytes;   /* if rows are taken in the order of the file */
} trace;

typedef struct trace_problem {
    char text[1024]; /* "file:line: reason" */
} trace_problem;

/* Reads and checks a trace. False, with the reason and nothing to free, if it is malformed. */
bool trace_read(const char *path, trace *out, trace_problem *problem);

void trace_free(trace *whole);

const char *trace_op_name(trace_op op);

#endif
