/* Clocks: what a stream has waited for, checked against an array with an entry for each timeline. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/streams/clock.h"

enum { TIMELINES = 64, ROUNDS = 2000 };

static uint64_t random_state = 1;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

/* Some of the numbers at both ends of what a timeline can have. */
static uint16_t timeline_number(uint32_t which)
{
    return which < TIMELINES / 2 ? (uint16_t)(which + 1) : (uint16_t)(UINT16_MAX - which);
}

static bool forget_nothing(strata_point point)
{
    (void)point;
    return false;
}

static bool forget_even_timelines(strata_point point)
{
    return strata_point_timeline(point) % 2 == 0;
}

static strata_clock *clock_of(strata_point point)
{
    strata_clock *clock = strata_clock_merge(NULL, NULL, point, forget_nothing);
    assert_non_null(clock);
    return clock;
}

static void a_point_keeps_its_timeline_its_epoch_and_whether_it_writes(void **state)
{
    (void)state;
    strata_point point = strata_point_make(UINT16_MAX, STRATA_POINT_EPOCH_MASK);
    assert_int_equal(strata_point_timeline(point), UINT16_MAX);
    assert_true(strata_point_epoch(point) == STRATA_POINT_EPOCH_MASK);
    assert_false(strata_point_writes(point));
    assert_true(strata_point_writes(point | STRATA_POINT_WRITE));
    assert_true(strata_point_epoch(point | STRATA_POINT_WRITE) == STRATA_POINT_EPOCH_MASK);
}

static void the_clock_that_is_null_knows_nothing(void **state)
{
    (void)state;
    assert_false(strata_clock_covers(NULL, strata_point_make(1, 1)));
    assert_null(strata_clock_ref(NULL));
    strata_clock_unref(NULL);
}

static void a_clock_covers_its_point_and_earlier_ones_of_that_timeline_only(void **state)
{
    (void)state;
    strata_clock *clock = clock_of(strata_point_make(7, 100) | STRATA_POINT_WRITE);
    assert_true(strata_clock_covers(clock, strata_point_make(7, 100)));
    assert_true(strata_clock_covers(clock, strata_point_make(7, 1)));
    assert_true(strata_clock_covers(clock, strata_point_make(7, 100) | STRATA_POINT_WRITE));
    assert_false(strata_clock_covers(clock, strata_point_make(7, 101)));
    assert_false(strata_clock_covers(clock, strata_point_make(6, 1)));
    assert_false(strata_clock_covers(clock, strata_point_make(8, 1)));
    strata_clock_unref(clock);
}

static void a_clock_lives_until_its_last_reference_is_gone(void **state)
{
    (void)state;
    strata_clock *clock = clock_of(strata_point_make(3, 5));
    assert_ptr_equal(strata_clock_ref(clock), clock);
    strata_clock_unref(clock);
    assert_true(strata_clock_covers(clock, strata_point_make(3, 5)));
    strata_clock_unref(clock);
}

static void merging_changes_neither_of_the_two(void **state)
{
    (void)state;
    strata_clock *a = clock_of(strata_point_make(3, 5)), *b = clock_of(strata_point_make(3, 9));
    strata_clock *merged = strata_clock_merge(a, b, strata_point_make(4, 1), forget_nothing);
    assert_int_equal(a->count, 1);
    assert_int_equal(b->count, 1);
    assert_false(strata_clock_covers(a, strata_point_make(3, 6)));
    assert_true(strata_clock_covers(merged, strata_point_make(3, 9)));
    assert_true(strata_clock_covers(merged, strata_point_make(4, 1)));
    strata_clock_unref(a);
    strata_clock_unref(b);
    strata_clock_unref(merged);
}

/* A clock of random points, and the same as an array. */
static strata_clock *random_clock(uint64_t *model)
{
    strata_clock *clock = NULL;
    for (uint32_t i = pick(TIMELINES); i > 0; i--) {
        uint32_t which = pick(TIMELINES);
        uint64_t epoch = 1 + pick(50);
        strata_clock *more =
            strata_clock_merge(clock, NULL, strata_point_make(timeline_number(which), epoch), forget_nothing);
        strata_clock_unref(clock);
        clock = more;
        if (model[which] < epoch)
            model[which] = epoch;
    }
    return clock;
}

static void check_order(const strata_clock *clock)
{
    for (uint32_t i = 1; i < clock->count; i++)
        assert_true(strata_point_timeline(clock->points[i - 1]) < strata_point_timeline(clock->points[i]));
    for (uint32_t i = 0; i < clock->count; i++)
        assert_false(strata_point_writes(clock->points[i]));
}

static void a_merged_clock_knows_the_later_of_both_for_every_timeline(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t in_a[TIMELINES] = {0}, in_b[TIMELINES] = {0};
        strata_clock *a = random_clock(in_a), *b = random_clock(in_b);
        uint32_t extra = pick(TIMELINES);
        uint64_t epoch = 1 + pick(50);
        strata_point point = strata_point_make(timeline_number(extra), epoch);
        if (pick(2))
            point |= STRATA_POINT_WRITE;
        bool forgets = pick(2);
        strata_clock *merged = strata_clock_merge(a, b, point, forgets ? forget_even_timelines : forget_nothing);
        assert_non_null(merged);
        check_order(merged);
        for (uint32_t i = 0; i < TIMELINES; i++) {
            uint64_t expected = in_a[i] > in_b[i] ? in_a[i] : in_b[i];
            if (i == extra && epoch > expected)
                expected = epoch;
            if (forgets && timeline_number(i) % 2 == 0)
                expected = 0;
            assert_false(strata_clock_covers(merged, strata_point_make(timeline_number(i), expected + 1)));
            if (expected)
                assert_true(strata_clock_covers(merged, strata_point_make(timeline_number(i), expected)));
        }
        strata_clock_unref(a);
        strata_clock_unref(b);
        strata_clock_unref(merged);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_point_keeps_its_timeline_its_epoch_and_whether_it_writes),
        cmocka_unit_test(the_clock_that_is_null_knows_nothing),
        cmocka_unit_test(a_clock_covers_its_point_and_earlier_ones_of_that_timeline_only),
        cmocka_unit_test(a_clock_lives_until_its_last_reference_is_gone),
        cmocka_unit_test(merging_changes_neither_of_the_two),
        cmocka_unit_test(a_merged_clock_knows_the_later_of_both_for_every_timeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
