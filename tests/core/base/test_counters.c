/* Counters that threads keep apart and a reader adds up, and the numbers of threads behind them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "core/base/counters.h"

#include <string.h>

enum { THREADS = 16, ADDITIONS = 20000, SHORT_LIVES = 2000 };

static strata_counters counters;

static int setup(void **state)
{
    (void)state;
    memset(&counters, 0, sizeof counters);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    strata_counters_destroy(&counters);
    return 0;
}

static void *add_up_and_down(void *data)
{
    (void)data;
    strata_thread *self = strata_thread_self();
    for (int i = 0; i < ADDITIONS; i++) {
        strata_counters_add(&counters, self, 0, 3);
        strata_counters_add(&counters, self, 1, i % 2 ? 5 : -7);
    }
    return NULL;
}

static void what_many_threads_add_is_in_the_sum_after_they_ended(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_up_and_down, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(strata_counters_sum(&counters, 0) == INT64_C(3) * THREADS * ADDITIONS);
    assert_true(strata_counters_sum(&counters, 1) == -INT64_C(1) * THREADS * ADDITIONS);
    assert_true(strata_counters_sum(&counters, 2) == 0);
}

static void *add_one(void *data)
{
    uint32_t *index = data;
    strata_thread *self = strata_thread_self();
    *index = self->index;
    strata_counters_add(&counters, self, 0, 1);
    return NULL;
}

static void a_thread_that_ended_leaves_its_number_and_its_sum_behind(void **state)
{
    (void)state;
    uint32_t highest = 0;
    for (size_t i = 0; i < SHORT_LIVES; i++) {
        pthread_t thread;
        uint32_t index = 0;
        assert_int_equal(pthread_create(&thread, NULL, add_one, &index), 0);
        pthread_join(thread, NULL);
        assert_int_not_equal(index, 0);
        highest = index > highest ? index : highest;
    }
    assert_true(strata_counters_sum(&counters, 0) == SHORT_LIVES);
    assert_in_range(highest, 1, 8);
}

static void a_thread_without_a_number_counts_too(void **state)
{
    (void)state;
    strata_thread unnumbered = {.index = 0};
    strata_counters_add(&counters, &unnumbered, 4, 11);
    strata_counters_add(&counters, NULL, 4, -1);
    strata_counters_add(&counters, strata_thread_self(), 4, 100);
    assert_true(strata_counters_sum(&counters, 4) == 110);
}

/* Work that is due at every hundredth addition is due as seldom on such a thread. */
static void a_thread_without_a_number_is_told_how_often_it_was_added(void **state)
{
    (void)state;
    strata_stripe *stripes[] = {NULL, strata_counters_self(&counters, strata_thread_self())};
    assert_non_null(stripes[1]);
    for (size_t i = 0; i < 2; i++)
        for (int64_t n = 1; n <= 300; n++)
            assert_true(strata_counters_add_to(&counters, stripes[i], 5, 1) == n);
    assert_true(strata_counters_sum(&counters, 5) == 600);
}

static pthread_barrier_t all_alive;

static void *note_number(void *data)
{
    uint32_t *index = data;
    *index = strata_thread_self()->index;
    pthread_barrier_wait(&all_alive);
    return NULL;
}

static void threads_that_live_at_once_have_different_numbers(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    uint32_t indices[THREADS + 1];
    assert_int_equal(pthread_barrier_init(&all_alive, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, note_number, &indices[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all_alive);
    indices[THREADS] = strata_thread_self()->index;
    for (size_t i = 0; i <= THREADS; i++)
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(indices[i], indices[j]);
}

static _Atomic int reading;

static void *read_sums(void *data)
{
    int64_t *last = data;
    while (atomic_load(&reading)) {
        int64_t sum = strata_counters_sum(&counters, 0);
        if (sum < *last || sum % 3)
            *last = INT64_MAX;
        else
            *last = sum;
    }
    return NULL;
}

static void a_sum_of_growing_counters_never_goes_back(void **state)
{
    (void)state;
    pthread_t reader, threads[4];
    int64_t last = 0;
    atomic_store(&reading, 1);
    assert_int_equal(pthread_create(&reader, NULL, read_sums, &last), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_up_and_down, NULL), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&reading, 0);
    pthread_join(reader, NULL);
    assert_true(last <= INT64_C(3) * 4 * ADDITIONS);
    assert_true(strata_counters_sum(&counters, 0) == INT64_C(3) * 4 * ADDITIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_many_threads_add_is_in_the_sum_after_they_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_that_ended_leaves_its_number_and_its_sum_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_without_a_number_counts_too, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_without_a_number_is_told_how_often_it_was_added, setup, teardown),
        cmocka_unit_test(threads_that_live_at_once_have_different_numbers),
        cmocka_unit_test_setup_teardown(a_sum_of_growing_counters_never_goes_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
