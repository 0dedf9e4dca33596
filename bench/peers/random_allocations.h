/* The sequence of RMM's benchmark random_allocations (rapidsai/rmm, cpp/benchmarks/random_allocations, 26.08), built
 * with libstdc++: the same sizes and frees in the same order. */
#ifndef STRATA_BENCH_RANDOM_ALLOCATIONS_H
#define STRATA_BENCH_RANDOM_ALLOCATIONS_H

#include "peers.h"

enum { RANDOM_CASES = 18, RANDOM_USAGE_MIB = 16000 };

/* Arguments, and the totals of their sequence. */
typedef struct random_case {
    uint32_t allocations;
    uint32_t max_mib;
    uint64_t sum_bytes; /* of all sizes */
    uint64_t peak_bytes;
    uint32_t peak_blocks;
} random_case;

/* The totals were seen in RMM's own program. */
extern const random_case random_cases[RANDOM_CASES];

/* Writes 2 * allocations steps on stream 0; allocations are taken to succeed. Slots are the lowest that are free.
 * `slots` and `live` are scratch, with `allocations` elements. */
void random_make(uint32_t allocations, uint32_t max_mib, peer_step *steps, uint32_t *slots, peer_step *live,
                 random_case *came_to);

bool random_totals_match(const random_case *came_to, const random_case *seen);

/* Sizes drawn one after another, of up to max_mib. */
void random_sizes(uint32_t max_mib, uint64_t *sizes, size_t count);

#endif
