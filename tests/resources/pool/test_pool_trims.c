/* pool: a trim while some free memory is complete and some is not. */
#include <pthread.h>
#include <time.h>

#include "support/pool.h"
#include "support/sweep.h"

enum { EACH = 16 << 20, BLOCKS = 8, MOST_SECONDS = 20 };

typedef struct trimmer {
    pthread_t thread;
    strata_runtime *runtime;
    size_t released;
    strata_status status;
} trimmer;

static void *trim(void *data)
{
    trimmer *self = data;
    test_make_current();
    self->status = strata_runtime_trim(self->runtime, 0, &self->released);
    return NULL;
}

/* Whether at most `bytes` are reserved within some seconds. */
static bool comes_down_to(strata_runtime *runtime, uint64_t bytes)
{
    struct timespec now, start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        if (value_of(runtime, "pool.reserved") <= bytes)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < (test_is_swept() ? 4 : MOST_SECONDS));
    return false;
}

/* The youngest chunks wait for the stuck stream; others are complete. */
static void a_trim_gives_back_what_is_complete_before_it_waits(test_fixture *fixture)
{
    CUstream done = test_stream(fixture, TEST_STREAM_POOL), stuck = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[2 * BLOCKS];
    for (int i = 0; i < 2 * BLOCKS; i++)
        blocks[i] = test_allocate(fixture, EACH, i < BLOCKS ? done : stuck);
    test_synchronize(done);
    test_synchronize(stuck);
    test_stall *stall = test_stall_begin(stuck);
    for (int i = 0; i < 2 * BLOCKS; i++)
        test_free_on(fixture, &blocks[i], i < BLOCKS ? done : stuck);
    const uint64_t before = value_of(fixture->runtime, "pool.reserved");
    trimmer other = {.runtime = fixture->runtime};
    assert_int_equal(pthread_create(&other.thread, NULL, trim, &other), 0);
    const bool came_down = comes_down_to(fixture->runtime, before - (uint64_t)BLOCKS * EACH);
    test_stall_end(stall);
    assert_int_equal(pthread_join(other.thread, NULL), 0);
    check_ok(other.status);
    assert_true(came_down);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 0);
    assert_int_equal(other.released, before);
}

int main(void)
{
    static const test_case cases[] = {TEST_CASE(a_trim_gives_back_what_is_complete_before_it_waits)};
    static const char *const stacks[] = {"pool", "pool, async"};
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, 1);
}
