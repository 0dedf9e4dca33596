/* The sequence of RMM's benchmark random_allocations (rapidsai/rmm, cpp/benchmarks/random_allocations, 26.08), as it is
 * when built with libstdc++: the same sizes and frees in the same order. */
#ifndef STRATA_BENCH_RANDOM_ALLOCATIONS_H
#define STRATA_BENCH_RANDOM_ALLOCATIONS_H

#include "peers.h"

enum { RANDOM_CASES = 18, RANDOM_USAGE_MIB = 16000 };

/* A pair of arguments, and the totals of its sequence. */
typedef struct random_case {
    uint32_t allocations;
    uint32_t max_mib;
    uint64_t sum_bytes; /* of all sizes */
    uint64_t peak_bytes;
    uint32_t peak_blocks;
} random_case;

/* All pairs, with the totals that RMM's own program was seen to have. */
extern const random_case random_cases[RANDOM_CASES];

/* Writes 2 * allocations steps, all on stream 0, none of which is taken to fail, and the sequence's totals into
 * *came_to. Slots are the lowest that are free: peak_blocks of them. `slots` and `live` are scratch memory for
 * `allocations` numbers each. */
void random_make(uint32_t allocations, uint32_t max_mib, peer_step *steps, uint32_t *slots, peer_step *live,
                 random_case *came_to);

/* Whether a sequence has the totals of its case. */
bool random_is_as_seen(const random_case *came_to, const random_case *seen);

/* The first `count` sizes of the generator, of up to max_mib, with nothing drawn in between. */
void random_sizes(uint32_t max_mib, uint64_t *sizes, size_t count);

#endif
