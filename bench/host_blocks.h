/* What a live block costs in host memory: a sweep over owners, sizes of blocks and counts of them. */
#ifndef STRATA_BENCH_HOST_BLOCKS_H
#define STRATA_BENCH_HOST_BLOCKS_H

#include <stddef.h>

enum { HOST_BLOCKS_LEAST = 3000 };

/* Prints the sweep, at `count` live blocks; 0: at 10,000 and 100,000. An exit status. */
int host_blocks_measure(size_t count);

#endif
