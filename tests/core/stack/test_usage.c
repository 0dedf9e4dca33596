/* What a usage says while other threads allocate and free: it is made of several totals, which are read one after
 * another, and no difference between them may ever be negative. The linker puts the function here in front of the
 * library's own (--wrap), so that a test decides what happens between two readings. */
#include "core/base/counters.h"

#include <pthread.h>

#include "support/fixture.h"

enum { BYTES = 4096, READINGS = 12 };

static _Thread_local strata_runtime *busy; /* NULL: no calls come in between */
static unsigned pairs_in_between;

typedef struct short_life {
    strata_runtime *runtime;
    bool good;
} short_life;

static void *allocate_and_free(void *data)
{
    strata_block block;
    short_life *life = data;
    test_make_current();
    life->good = strata_runtime_allocate(life->runtime, BYTES, NULL, &block) == STRATA_SUCCESS &&
                 strata_runtime_deallocate(life->runtime, &block) == STRATA_SUCCESS &&
                 strata_runtime_reap_pending(life->runtime) == STRATA_SUCCESS;
    return NULL;
}

static void come_in_between(strata_runtime *runtime)
{
    pthread_t thread;
    short_life life = {.runtime = runtime};
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_free, &life), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(life.good);
}

int64_t __real_strata_counters_sum(const strata_counters *counters, unsigned which);
int64_t __wrap_strata_counters_sum(const strata_counters *counters, unsigned which);

int64_t __wrap_strata_counters_sum(const strata_counters *counters, unsigned which)
{
    int64_t sum = __real_strata_counters_sum(counters, which);
    for (unsigned i = 0; busy && i < pairs_in_between; i++)
        come_in_between(busy);
    return sum;
}

static void stop_coming(void)
{
    busy = NULL;
}

static strata_usage usage_of_a_busy_runtime(test_fixture *fixture, unsigned pairs)
{
    strata_usage usage;
    pairs_in_between = pairs;
    busy = fixture->runtime;
    strata_status status = strata_runtime_usage(fixture->runtime, &usage);
    busy = NULL;
    check_ok(status);
    return usage;
}

static void no_figure_wraps_when_others_allocate_and_free_between_two_readings(test_fixture *fixture)
{
    strata_block kept = test_allocate(fixture, BYTES, NULL);
    for (unsigned pairs = 0; pairs < 4; pairs++) {
        strata_usage usage = usage_of_a_busy_runtime(fixture, pairs);
        size_t most = 1 + (size_t)READINGS * pairs; /* a block in between counts as live or retired by mistake */
        assert_in_range(usage.live_blocks, 1, most);
        assert_in_range(usage.live_bytes, BYTES, most * BYTES);
        assert_in_range(usage.retired_bytes, 0, (most - 1) * BYTES);
        assert_in_range(usage.bytes_outstanding, BYTES, 2 * most * BYTES);
    }
    test_free_on(fixture, &kept, NULL);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_blocks, 0);
    assert_true(usage.live_bytes == 0 && usage.bytes_outstanding == 0);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(no_figure_wraps_when_others_allocate_and_free_between_two_readings),
    };
    test_open_driver();
    test_before_clearing = stop_coming;
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
