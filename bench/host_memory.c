/* strata_bench_host: the library's host memory allocator beside the C library's: zeroed allocations of 64 to 1,087
 * bytes and their frees, 1 or 64 of them live, on one thread and several.
 *
 *     strata_bench_host            the library's arena, if there is one
 *     STRATA_HOST_MEMORY=libc strata_bench_host
 *                                  the library's functions over the C library's heap
 *     strata_bench_host blocks [COUNT]
 *                                  host memory of a live block: bench/host_blocks.h
 *     strata_bench_host pinned     page-locked memory: bench/host_pinned.h */
#include "host_blocks.h"
#include "host_pinned.h"

#include "core/base/host_memory.h"
#include "core/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAIRS = 1 << 18, ROUNDS = 21, MOST_LIVE = 64, MOST_THREADS = 4 };

typedef struct allocator {
    const char *name;
    void *(*zalloc)(size_t bytes);
    void (*free)(void *memory);
    bool stateless; /* threads unknown to the library, which have no cache */
} allocator;

static void *c_zalloc(size_t bytes)
{
    return calloc(1, bytes);
}

static const allocator allocators[] = {
    {"C library", c_zalloc, free, true},
    {"Strata", strata_host_zalloc, strata_host_free, false},
    {"Strata without a cache", strata_host_zalloc, strata_host_free, true},
};

enum { ALLOCATORS = sizeof allocators / sizeof allocators[0] };

typedef struct work {
    const allocator *with;
    size_t live;
    double nanoseconds; /* per pair */
} work;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void make_pairs(const work *self, size_t count)
{
    void *live[MOST_LIVE] = {NULL};
    for (size_t i = 0; i < count; i++) {
        void **place = &live[i % self->live];
        self->with->free(*place);
        *place = self->with->zalloc(64 + (i * 7) % 1024);
        if (!*place)
            exit(1);
    }
    for (size_t i = 0; i < self->live; i++)
        self->with->free(live[i]);
}

static void *run(void *data)
{
    work *self = data;
    if (!self->with->stateless && !strata_thread_self())
        exit(1);
    make_pairs(self, PAIRS / 16);
    double begin = now_ns();
    make_pairs(self, PAIRS);
    self->nanoseconds = (now_ns() - begin) / PAIRS;
    return NULL;
}

/* New threads each round, so that no cache outlives a round. */
static double one_round(const allocator *with, size_t live, size_t threads)
{
    pthread_t started[MOST_THREADS];
    work each[MOST_THREADS];
    double sum = 0;
    for (size_t i = 0; i < threads; i++) {
        each[i] = (work){.with = with, .live = live};
        if (pthread_create(&started[i], NULL, run, &each[i]) != 0)
            exit(1);
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(started[i], NULL);
        sum += each[i].nanoseconds;
    }
    return sum / (double)threads;
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void report(size_t live, size_t threads)
{
    double rounds[ALLOCATORS][ROUNDS];
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < ALLOCATORS; i++)
            rounds[i][round] = one_round(&allocators[i], live, threads);
    printf("%4zu live, %zu thread%s", live, threads, threads == 1 ? ": " : "s:");
    for (size_t i = 0; i < ALLOCATORS; i++) {
        qsort(rounds[i], ROUNDS, sizeof rounds[i][0], by_size);
        printf("%s %s %.1f", i ? "," : "", allocators[i].name, rounds[i][ROUNDS / 2]);
    }
    printf("\n");
}

static int refuse(void)
{
    fprintf(stderr, "usage: strata_bench_host [blocks [COUNT] | pinned]\nCOUNT: live blocks, %d to 1000000\n",
            HOST_BLOCKS_LEAST);
    return 2;
}

static int measure_blocks(const char *count)
{
    char *end = "";
    const unsigned long blocks = count ? strtoul(count, &end, 10) : 0;
    if (*end || (count && (blocks < HOST_BLOCKS_LEAST || blocks > 1000000)))
        return refuse();
    return host_blocks_measure(blocks);
}

static int measure_pairs(void)
{
    printf("ns a pair of 64 to 1087 bytes, medians of %d rounds; Strata's from %s\n", ROUNDS,
           strata_host_allocator_name());
    for (size_t live = 1; live <= MOST_LIVE; live *= MOST_LIVE)
        for (size_t threads = 1; threads <= MOST_THREADS; threads *= 2)
            report(live, threads);
    return 0;
}

int main(int argc, char **argv)
{
    const bool pinned = argc == 2 && strcmp(argv[1], "pinned") == 0;
    if (argc > 3 || (argc > 1 && !pinned && strcmp(argv[1], "blocks") != 0))
        return refuse();
    const int status = pinned ? host_pinned_measure() : argc > 1 ? measure_blocks(argv[2]) : measure_pairs();
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    perror("strata_bench_host: the output could not be written");
    return 1;
}
