/* strata_bench_host pinned: an allocation and its free in `pinned`, on a known stream whose work is complete, beside
 * jemalloc's mallocx and dallocx of the same size, with a cache, and beside cuMemHostAlloc and cuMemFreeHost. */
#ifndef STRATA_BENCH_HOST_PINNED_H
#define STRATA_BENCH_HOST_PINNED_H

/* Prints a line a size; returns the exit status. */
int host_pinned_measure(void);

#endif
