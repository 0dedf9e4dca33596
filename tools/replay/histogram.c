/* Buckets: one a nanosecond up to a limit, then 256 a power of two. */
#include "tools/replay/histogram.h"

#include <stddef.h>

static size_t bucket_of(uint64_t nanoseconds)
{
    if (nanoseconds < 1u << HISTOGRAM_EXACT_BITS)
        return (size_t)nanoseconds;
    unsigned power = 63u - (unsigned)__builtin_clzll(nanoseconds);
    uint64_t part = nanoseconds >> (power - HISTOGRAM_PART_BITS) & ((1u << HISTOGRAM_PART_BITS) - 1);
    return (1u << HISTOGRAM_EXACT_BITS) + ((size_t)(power - HISTOGRAM_EXACT_BITS) << HISTOGRAM_PART_BITS) +
           (size_t)part;
}

static uint64_t shortest_in(size_t bucket)
{
    if (bucket < 1u << HISTOGRAM_EXACT_BITS)
        return bucket;
    size_t beyond = bucket - (1u << HISTOGRAM_EXACT_BITS);
    unsigned power = (unsigned)(beyond >> HISTOGRAM_PART_BITS) + HISTOGRAM_EXACT_BITS;
    uint64_t part = beyond & ((1u << HISTOGRAM_PART_BITS) - 1);
    return (UINT64_C(1) << power) + (part << (power - HISTOGRAM_PART_BITS));
}

void histogram_add(histogram *into, uint64_t nanoseconds)
{
    into->count++;
    into->buckets[bucket_of(nanoseconds)]++;
}

void histogram_merge(histogram *into, const histogram *from)
{
    into->count += from->count;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

uint64_t histogram_percentile(const histogram *of, unsigned percent)
{
    uint64_t wanted = of->count / 100 * percent + (of->count % 100 * percent + 99) / 100;
    uint64_t seen = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += of->buckets[i];
        if (of->buckets[i] && seen >= wanted)
            return shortest_in(i);
    }
    return 0;
}
