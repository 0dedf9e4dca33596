/* Options and results of a replay. */
#ifndef STRATA_TOOLS_REPLAY_REPLAY_ENGINE_H
#define STRATA_TOOLS_REPLAY_REPLAY_ENGINE_H

#include "tools/replay/call_counts.h"
#include "tools/replay/histogram.h"
#include "tools/trace/trace.h"

#include <strata/runtime.h>

enum { REPLAY_FINDINGS = 8 };

/* All zero: one thread, one pass, full speed, nothing shared or touched. */
typedef struct replay_options {
    uint32_t threads; /* 0: 1 */
    uint32_t repeat;  /* 0: 1 */
    unsigned share;   /* percent */
    bool pace;
    bool touch;
    bool busy;           /* writes the first bytes of each block */
    bool default_stream; /* the trace's first stream is the legacy default one */
    bool progress;
} replay_options;

typedef struct replay_failure {
    char text[1024];
} replay_failure;

typedef struct replay_corruption {
    const char *trace;
    uint64_t id;
    uint32_t line; /* of its allocation */
    uint32_t pass;
    uint64_t bytes;
    uint64_t wrong; /* bytes */
    uint64_t first; /* offset of the first of them */
} replay_corruption;

typedef struct replay_result {
    /* Work of all passes. */
    uint64_t operations; /* rows: the five kinds below */
    uint64_t allocations;
    uint64_t frees;
    uint64_t uses;
    uint64_t waits;
    uint64_t syncs;
    uint64_t shared_blocks;
    uint64_t recorded_failures;
    uint64_t recorded_strays;
    uint64_t recorded_dropped;
    uint64_t recorded_torn;
    uint64_t recorded_unfreed;
    uint64_t recorded_cut;  /* traces */
    uint64_t left_by_trace; /* never freed by the traces; freed after each pass */
    uint32_t streams;
    uint32_t threads;

    /* Problems. */
    uint64_t failures;
    uint64_t skipped; /* rows of a block that could not be allocated */
    uint64_t corrupted_blocks;
    uint64_t leaked_blocks; /* counted by the stack after everything was freed */
    uint64_t leaked_bytes;
    uint64_t peak_live_bytes;
    uint64_t peak_reserved_bytes;
    uint64_t touched_bytes; /* written and read by patterns */
    uint64_t wall_ns;
    call_counts driver_calls; /* of the stack, and the replay's kernels, waits and syncs */
    histogram operation_ns;   /* allocate and deallocate */
    histogram allocate_ns;    /* of the call alone */
    histogram deallocate_ns;
    histogram use_ns; /* prepare plus finish of a use */

    replay_failure failed[REPLAY_FINDINGS]; /* each thread's first ones */
    uint32_t failed_count;
    replay_corruption corrupted[REPLAY_FINDINGS]; /* the first ones */
    uint32_t corrupted_count;
} replay_result;

/* How many streams the runtime's pool must have. */
uint32_t replay_streams_needed(const trace *traces, size_t count, const replay_options *options);

/* Replays the traces in order, `repeat` times. False, with a sentence in `problem`, if it could not start; failed calls
 * are part of the result. */
bool replay_run(strata_runtime *runtime, const trace *traces, size_t count, const replay_options *options,
                replay_result *result, replay_failure *problem);

/* Whether nothing failed, was corrupted or left over. */
bool replay_is_clean(const replay_result *result);

#endif
