/* Who does what: a trace's rows, dealt to streams and threads. */
#ifndef STRATA_TOOLS_REPLAY_PLAN_H
#define STRATA_TOOLS_REPLAY_PLAN_H

#include "tools/trace/trace.h"

typedef struct replay_plan {
    const trace *trace;
    uint32_t streams;        /* needed on the device, at least as many as the trace has */
    uint32_t threads;        /* at most one for each stream */
    uint32_t shared_blocks;  /* used and freed on another stream than their own */
    uint32_t *row_streams;   /* the stream of each row: the trace's, but for the frees of shared blocks */
    bool *shared;            /* for each block */
    uint32_t *thread_rows;   /* all rows, those of thread 0 first, each thread's in the order of the trace */
    uint32_t *thread_starts; /* threads + 1 places in thread_rows */
} replay_plan;

/* Deals out `trace`, which must outlive the plan, with `share` percent of the blocks shared. False: no host memory. */
bool plan_make(replay_plan *plan, const trace *trace, uint32_t threads, unsigned share);
void plan_free(replay_plan *plan);

static inline uint32_t plan_thread_of(const replay_plan *plan, uint32_t stream)
{
    return stream % plan->threads;
}

/* The stream on which a block is used last: that of its free, or where its free would be. */
uint32_t plan_last_stream(const replay_plan *plan, uint32_t block);

/* A bijection of 64 bits that spreads every bit: for choices and patterns that are the same in every run. */
uint64_t plan_mix(uint64_t x);

#endif
