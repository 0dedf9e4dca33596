/* Host memory of a live block, for various owners, block sizes and counts. */
#ifndef STRATA_BENCH_HOST_BLOCKS_H
#define STRATA_BENCH_HOST_BLOCKS_H

#include <stddef.h>

enum { HOST_BLOCKS_LEAST = 3000 };

/* Prints the sweep for `count` live blocks; 0: for 10,000 and 100,000. Returns an exit status. */
int host_blocks_measure(size_t count);

#endif
