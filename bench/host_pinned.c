/* All three take turns in each round, so that a change of the machine's speed meets all of them. */
#include "host_pinned.h"

#include "core/streams/device.h"

#include <strata/strata.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef STRATA_BENCH_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

enum { ROUNDS = 21 };

/* NULL: not measured. */
typedef struct contestant {
    const char *name;
    void (*pairs)(size_t bytes, size_t count);
    size_t divisor; /* of the pairs of a round: slow ones make fewer */
} contestant;

static strata_runtime *runtime;
static CUstream stream;

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    const strata_error *error = strata_last_error();
    fprintf(stderr, "strata_bench_host: %s failed: %s\n", what, error ? error->message : "");
    exit(1);
}

static void pinned_pairs(size_t bytes, size_t count)
{
    strata_block block;
    for (size_t i = 0; i < count; i++) {
        check(strata_runtime_allocate(runtime, bytes, stream, &block) == STRATA_SUCCESS, "an allocation");
        check(strata_runtime_deallocate(runtime, &block) == STRATA_SUCCESS, "a free");
    }
}

static void driver_pairs(size_t bytes, size_t count)
{
    void *memory;
    for (size_t i = 0; i < count; i++) {
        check(strata_cu.MemHostAlloc(&memory, bytes, 0) == CUDA_SUCCESS, "cuMemHostAlloc");
        check(strata_cu.MemFreeHost(memory) == CUDA_SUCCESS, "cuMemFreeHost");
    }
}

#ifdef STRATA_BENCH_JEMALLOC
static const bool has_jemalloc = true;
static int jemalloc_flags;

static void open_jemalloc(void)
{
    unsigned arena, cache;
    size_t size = sizeof arena;
    check(strata_je_mallctl("arenas.create", &arena, &size, NULL, 0) == 0, "an arena of jemalloc");
    check(strata_je_mallctl("tcache.create", &cache, &size, NULL, 0) == 0, "a cache of jemalloc");
    jemalloc_flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE(cache);
}

static void jemalloc_pairs(size_t bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *memory = strata_je_mallocx(bytes, jemalloc_flags);
        check(memory != NULL, "mallocx");
        strata_je_dallocx(memory, jemalloc_flags);
    }
}
#else
static const bool has_jemalloc = false;

static void open_jemalloc(void)
{
}

#define jemalloc_pairs NULL
#endif

static const contestant contestants[] = {
    {"pinned", pinned_pairs, 1},
    {"mallocx and dallocx", jemalloc_pairs, 1},
    {"cuMemHostAlloc and cuMemFreeHost", driver_pairs, 512},
};

enum { CONTESTANTS = sizeof contestants / sizeof contestants[0] };

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double one_round(const contestant *of, size_t bytes, size_t pairs)
{
    const size_t count = pairs / of->divisor + 1;
    of->pairs(bytes, count / 16 + 1);
    const double begin = now_ns();
    of->pairs(bytes, count);
    return (now_ns() - begin) / (double)count;
}

static void measure(size_t bytes, size_t pairs)
{
    double rounds[CONTESTANTS][ROUNDS];
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < CONTESTANTS; i++)
            rounds[i][round] = contestants[i].pairs ? one_round(&contestants[i], bytes, pairs) : 0;
    printf("%8zu bytes:", bytes);
    for (size_t i = 0; i < CONTESTANTS; i++) {
        qsort(rounds[i], ROUNDS, sizeof rounds[i][0], by_size);
        if (contestants[i].pairs)
            printf("%s %s %.1f", i ? "," : "", contestants[i].name, rounds[i][ROUNDS / 2]);
    }
    if (has_jemalloc)
        printf("; pinned takes %.2f times jemalloc's", rounds[0][ROUNDS / 2] / rounds[1][ROUNDS / 2]);
    printf("\n");
}

int host_pinned_measure(void)
{
    static const size_t sizes[] = {256, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20};
    check(strata_runtime_create(&(strata_runtime_config){.stack_text = "pinned"}, &runtime) == STRATA_SUCCESS,
          "a runtime");
    check(strata_runtime_stream_acquire(runtime, &stream) == STRATA_SUCCESS, "a stream");
    strata_driver_scope scope;
    check(strata_driver_scope_enter(&scope, 0) == STRATA_SUCCESS, "the context");
    open_jemalloc();
    printf("ns a pair, medians of %d rounds\n", ROUNDS);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        measure(sizes[i], sizes[i] > 65536 ? 1 << 11 : 1 << 14);
    strata_driver_scope_leave(&scope);
    check(strata_runtime_stream_release(runtime, stream) == STRATA_SUCCESS, "the stream's release");
    check(strata_runtime_destroy(runtime) == STRATA_SUCCESS, "the runtime's end");
    return 0;
}
