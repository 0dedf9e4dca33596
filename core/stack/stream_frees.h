/* Freed memory that waits for streams, summed by stream: what owners report to strata_stack_visit_frees. */
#ifndef STRATA_CORE_STACK_STREAM_FREES_H
#define STRATA_CORE_STACK_STREAM_FREES_H

#include "core/streams/timeline.h"

/* One thread's. */
typedef struct strata_stream_sums strata_stream_sums;

/* Counts one free of so many bytes for the stream of a point that is not known to be complete. The owner may hold its
 * locks. */
void strata_stream_sums_add(strata_stream_sums *sums, strata_point point, uint64_t bytes);

/* A free to count for each of its points. */
typedef struct strata_summed_free {
    strata_stream_sums *sums;
    uint64_t bytes;
} strata_summed_free;

/* strata_stream_sums_add as a visitor of points; `data`: a strata_summed_free. Always STRATA_SUCCESS. */
strata_status strata_stream_sums_visit(strata_point point, void *data);

#endif
