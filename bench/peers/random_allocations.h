/* The sequence of RMM's benchmark random_allocations (rapidsai/rmm, cpp/benchmarks/random_allocations, 26.08), as that
 * program makes it when it is built with libstdc++: the same sizes, the same frees, in the same order. */
#ifndef STRATA_BENCH_RANDOM_ALLOCATIONS_H
#define STRATA_BENCH_RANDOM_ALLOCATIONS_H

#include "peers.h"

enum { RANDOM_CASES = 18, RANDOM_USAGE_MIB = 16000 };

/* One pair of arguments, and what the sequence comes to. */
typedef struct random_case {
    uint32_t allocations;
    uint32_t max_mib;
    uint64_t sum_bytes; /* of all sizes */
    uint64_t peak_bytes;
    uint32_t peak_blocks;
} random_case;

/* All pairs, with the values that RMM's own program was seen to come to. */
extern const random_case random_cases[RANDOM_CASES];

/* Writes the steps, 2 * allocations of them, all on stream 0; no allocation is taken to fail. In *came_to stands what
 * the sequence came to. The slots are the lowest that are free: peak_blocks of them. `slots` has room for `allocations`
 * numbers, `live` likewise; both are scratch. */
void random_make(uint32_t allocations, uint32_t max_mib, peer_step *steps, uint32_t *slots, peer_step *live,
                 random_case *came_to);

/* Whether a sequence came to what its case says. */
bool random_is_as_seen(const random_case *came_to, const random_case *seen);

/* The first `count` numbers that the generator gives for sizes of up to max_mib, with nothing drawn in between. */
void random_sizes(uint32_t max_mib, uint64_t *sizes, size_t count);

#endif
