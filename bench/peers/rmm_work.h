/* The iterations of RMM's two benchmarks (rapidsai/rmm 26.08). */
#ifndef STRATA_BENCH_RMM_WORK_H
#define STRATA_BENCH_RMM_WORK_H

#include "random_allocations.h"

/* ---- random_allocations ---- */

/* RMM's program draws its numbers with the clock running; here they are drawn before. Its stream is the default one,
 * this one is known. */
typedef struct sequence {
    peer_step *steps;
    size_t count;
    size_t peak; /* the step with the most live blocks */
    bool leftovers;
    char *slots;         /* of one competitor at a time */
    unsigned char *live; /* a byte for each slot, zero between runs */
} sequence;

/* Exits without memory. */
void sequence_open(sequence *self);
void sequence_close(sequence *self);

/* The sequence of a case; with `quick`, its beginning. Exits if it is not RMM's. */
void sequence_draw(sequence *self, const random_case *seen, bool quick);

/* Runs the sequence once. False: no memory. */
bool sequence_run(const sequence *self, peer *with);

/* ---- multi_stream_allocations ---- */

enum { STREAM_CASES = 6, STREAMS_KERNELS = 4, STREAMS_LIMIT = 4 };

typedef struct stream_case {
    uint32_t streams;
    bool prewarmed;
} stream_case;

extern const stream_case stream_cases[STREAM_CASES];

/* Writes a name such as "4 kernels on 2 streams, prewarmed". */
void streams_name(const stream_case *self, char *into, size_t size);

/* Allocates once on each stream, if the case asks for it. */
void streams_prewarm(const stream_case *self, peer *with);

/* Kernels of a million ticks on the streams in turn, each with a block of 8 bytes; then waits for the device. */
void streams_run(const stream_case *self, peer *with);

#endif
