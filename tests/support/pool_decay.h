/* For tests of what a pool returns over time. The test controls the clock of decay (--wrap=clock_gettime): it runs as
 * usual, and jumps on demand; and it can refuse host memory (--wrap=strata_host_zalloc). */
#ifndef STRATA_TESTS_SUPPORT_POOL_DECAY_H
#define STRATA_TESTS_SUPPORT_POOL_DECAY_H

#include <time.h>

#include "support/pool.h"

#define SECOND UINT64_C(1000000000)
#define WINDOW (1000 * SECOND) /* only jumps end one */

enum { CHUNK = 2 << 20 /* mapping granularity of the simulated device and of an H200 */ };

/* ---- the clock ---- */

static uint64_t ahead; /* nanoseconds; one thread */

int __real_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = __real_clock_gettime(clock, now);
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)
        now->tv_sec += (time_t)(ahead / SECOND);
    return result;
}

static inline void pass(uint64_t windows)
{
    ahead += windows * WINDOW;
}

/* ---- host memory ---- */

static bool drought;

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return drought ? NULL : __real_strata_host_zalloc(bytes);
}

/* ---- the pool ---- */

static inline void set(test_fixture *fixture, const char *name, uint64_t value)
{
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, NULL, &value));
}

static inline size_t reserved(test_fixture *fixture)
{
    return test_usage(fixture).reserved_bytes;
}

enum { CLASSED = 128 << 10 /* sizes up to here are in classes, which a cache has */ };

static size_t small_bytes;

/* Calls that go to the heap: of sizes that no cache has. */
static inline void make_slow_calls(test_fixture *fixture, unsigned count, CUstream stream)
{
    for (unsigned i = 0; i < count; i++) {
        small_bytes = small_bytes % (64 << 10) + 512;
        strata_block block = test_allocate(fixture, CLASSED + small_bytes, stream);
        test_free_on(fixture, &block, stream);
    }
}

/* Free memory that is known to be complete. */
static inline void leave_free(test_fixture *fixture, size_t bytes, CUstream stream)
{
    enum { PARTS = 64 };
    strata_block blocks[PARTS];
    size_t count = 0;
    assert_true(bytes % CHUNK == 0 && bytes <= (size_t)CHUNK * PARTS);
    for (; count < bytes / CHUNK; count++) { /* each in a chunk of its own, over other layers too */
        blocks[count] = test_allocate(fixture, CHUNK, stream);
        write_head(fixture, &blocks[count], 0x11, stream);
    }
    while (count)
        test_free_on(fixture, &blocks[--count], stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
}

/* Sets a window, and ends the first, in which everything counts as used. The small blocks of the calls have a chunk. */
static inline void begin_decay(test_fixture *fixture, CUstream stream)
{
    make_slow_calls(fixture, 1, stream);
    set(fixture, "pool.decay", WINDOW);
    pass(1);
    make_slow_calls(fixture, 2, stream);
}

/* Long enough for all unused memory to be returned. */
static inline void sleep_through(test_fixture *fixture)
{
    for (int i = 0; i < 2; i++) { /* what was used before the first window is returned by the second */
        pass(100);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
    }
}

#endif
