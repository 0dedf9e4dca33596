/* Durations, exact below 16 microseconds, to one part in 256 above. Written by one thread at a time. */
#ifndef STRATA_TOOLS_REPLAY_HISTOGRAM_H
#define STRATA_TOOLS_REPLAY_HISTOGRAM_H

#include <stdint.h>

enum {
    HISTOGRAM_EXACT_BITS = 14,
    HISTOGRAM_PART_BITS = 8,
    HISTOGRAM_BUCKETS = (1 << HISTOGRAM_EXACT_BITS) + ((64 - HISTOGRAM_EXACT_BITS) << HISTOGRAM_PART_BITS),
};

typedef struct histogram {
    uint64_t count;
    uint64_t buckets[HISTOGRAM_BUCKETS];
} histogram;

void histogram_add(histogram *into, uint64_t nanoseconds);

void histogram_merge(histogram *into, const histogram *from);

/* The smallest duration that `percent` of them do not exceed; 0: none. */
uint64_t histogram_percentile(const histogram *of, unsigned percent);

#endif
