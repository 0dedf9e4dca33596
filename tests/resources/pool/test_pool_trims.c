/* pool: a trim while some free memory is complete and some is not, and beside another thread that returns memory. */
#include <pthread.h>
#include <string.h>
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

static void trims_while_stuck(test_fixture *fixture, test_stall *stall, size_t complete)
{
    const uint64_t before = value_of(fixture->runtime, "pool.reserved");
    trimmer other = {.runtime = fixture->runtime};
    assert_int_equal(pthread_create(&other.thread, NULL, trim, &other), 0);
    const bool came_down = comes_down_to(fixture->runtime, before - complete);
    test_stall_end(stall);
    assert_int_equal(pthread_join(other.thread, NULL), 0);
    check_ok(other.status);
    assert_true(came_down);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 0);
    assert_int_equal(other.released, before);
}

/* The youngest chunks wait for the stuck stream; others are complete. */
static void a_trim_gives_back_what_is_complete_before_it_waits(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream done = test_stream(fixture, TEST_STREAM_POOL), stuck = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[2 * BLOCKS];
    for (int i = 0; i < 2 * BLOCKS; i++)
        blocks[i] = test_allocate(fixture, EACH, i < BLOCKS ? done : stuck);
    test_synchronize(done);
    test_synchronize(stuck);
    test_stall *stall = test_stall_begin(stuck);
    for (int i = 0; i < 2 * BLOCKS; i++)
        test_free_on(fixture, &blocks[i], i < BLOCKS ? done : stuck);
    trims_while_stuck(fixture, stall, (size_t)BLOCKS * EACH);
}

/* The guard keeps a block of the stuck stream until its last check. */
static void a_trim_gives_back_what_is_free_below_before_it_waits_for_checks(test_fixture *fixture)
{
    size_t released;
    test_needs_simulated_driver("the pool learns in time that the free memory is complete");
    CUstream done = test_stream(fixture, TEST_STREAM_POOL), stuck = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, 8 * EACH, done), second = test_allocate(fixture, EACH, stuck);
    test_free_on(fixture, &first, done);
    check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX, &released)); /* checks what is free */
    test_synchronize(stuck);
    test_stall *stall = test_stall_begin(stuck);
    test_free_on(fixture, &second, stuck);
    trims_while_stuck(fixture, stall, 8 * EACH);
}

/* ---- two threads that keep the same bytes ---- */

enum { KEPT = 2 << 20 }; /* a chunk; the threshold in main */

static struct {
    strata_runtime *runtime;
    test_stall *stall;
    pthread_t trims;
    PFN_cuEventSynchronize_v2000 real;
    strata_status status;
    uint64_t left;
    bool came;
} beside;

/* Returns what is above the threshold. */
static void *reap(void *data)
{
    (void)data;
    test_make_current();
    beside.status = strata_runtime_reap_pending(beside.runtime);
    return NULL;
}

static CUresult CUDAAPI synchronize_beside_a_reap(CUevent event)
{
    pthread_t thread;
    if (!beside.came && pthread_equal(pthread_self(), beside.trims)) {
        beside.came = true;
        test_stall_release(beside.stall);
        if (pthread_create(&thread, NULL, reap, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return beside.real(event);
}

/* The trim waits for the work on one chunk; meanwhile a reap returns memory, too. */
static void a_trim_keeps_its_bytes_beside_another_thread_that_returns_memory(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[2];
    for (int i = 0; i < 2; i++)
        blocks[i] = test_allocate(fixture, KEPT, stream);
    const uint64_t before = value_of(fixture->runtime, "pool.reserved");
    test_synchronize(stream);
    memset(&beside, 0, sizeof beside);
    beside.runtime = fixture->runtime;
    beside.stall = test_stall_begin(stream);
    for (int i = 0; i < 2; i++)
        test_free_on(fixture, &blocks[i], stream);
    beside.trims = pthread_self();
    beside.real = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = synchronize_beside_a_reap;
    const strata_status status = strata_runtime_trim(fixture->runtime, KEPT, NULL);
    strata_cu.EventSynchronize = beside.real;
    test_stall_end(beside.stall);
    check_ok(status);
    check_ok(beside.status);
    assert_true(beside.came && before == 2 * KEPT);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), KEPT);
}

int main(void)
{
    static const test_case cases[] = {TEST_CASE(a_trim_gives_back_what_is_complete_before_it_waits)};
    static const test_case guarded[] = {TEST_CASE(a_trim_gives_back_what_is_free_below_before_it_waits_for_checks)};
    static const char *const stacks[] = {"pool", "pool, async"}, *const guards[] = {"guard, pool"};
    static const test_case beside_a_reap[] = {
        TEST_CASE(a_trim_keeps_its_bytes_beside_another_thread_that_returns_memory)};
    static const char *const kept[] = {"pool(chunk=2MiB, release_threshold=2MiB)",
                                       "pool(chunk=2MiB, release_threshold=2MiB), async"};
    test_open_driver();
    int failed = test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, 1);
    failed += test_run_on(guards, 1, guarded, 1);
    return failed + (test_is_swept() ? 0 : test_run_on(kept, 2, beside_a_reap, 1));
}
