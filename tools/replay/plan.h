/* The plan of a replay: a trace's rows assigned to streams and threads. */
#ifndef STRATA_TOOLS_REPLAY_PLAN_H
#define STRATA_TOOLS_REPLAY_PLAN_H

#include "tools/trace/trace.h"

typedef struct replay_plan {
    const trace *trace;
    uint32_t streams;       /* at least the trace's */
    uint32_t threads;       /* at most one a stream */
    uint32_t shared_blocks; /* used and freed on another stream than their own */
    uint32_t *row_streams;  /* the trace's, except for frees of shared blocks */
    bool *shared;
    uint32_t *thread_rows;   /* grouped by thread, in the trace's order */
    uint32_t *thread_starts; /* threads + 1 offsets */
} replay_plan;

/* `trace` must outlive the plan. `share`: percent of blocks shared. False without host memory. */
bool plan_make(replay_plan *plan, const trace *trace, uint32_t threads, unsigned share);
void plan_free(replay_plan *plan);

static inline uint32_t plan_thread_of(const replay_plan *plan, uint32_t stream)
{
    return stream % plan->threads;
}

/* The stream of a block's free, or on which it would be freed. */
uint32_t plan_last_stream(const replay_plan *plan, uint32_t block);

/* A bijection that spreads every bit. */
uint64_t plan_mix(uint64_t x);

#endif
