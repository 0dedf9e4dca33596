/* Freed memory that waits for streams, summed by stream: what owners report to strata_stack_visit_frees. */
#ifndef STRATA_CORE_STACK_STREAM_FREES_H
#define STRATA_CORE_STACK_STREAM_FREES_H

#include "core/streams/timeline.h"

/* The sums of one walk over a stack's layers; one thread's alone. */
typedef struct strata_stream_sums strata_stream_sums;

/* Adds one free of `bytes` bytes to the sums of the point's stream; nothing if the point is 0 or known to be complete.
 * The owner may hold its locks. */
void strata_stream_sums_add(strata_stream_sums *sums, strata_point point, uint64_t bytes);

/* A free whose bytes count for the stream of each of its points. */
typedef struct strata_summed_free {
    strata_stream_sums *sums;
    uint64_t bytes;
} strata_summed_free;

/* strata_stream_sums_add as a visitor of points; `data`: a strata_summed_free. Always STRATA_SUCCESS. */
strata_status strata_stream_sums_visit(strata_point point, void *data);

#endif
