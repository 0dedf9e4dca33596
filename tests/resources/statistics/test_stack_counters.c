/* What the statistics layer counts by call stack. */
#include "support/statistics.h"

#include "support/symbols.h"

enum { MOST = 16 };

static _Thread_local volatile unsigned kept; /* no call is the last thing that a function does */

__attribute__((noinline)) static strata_block in_one_place(size_t bytes)
{
    strata_block block = allocate(bytes, tag_a);
    kept++;
    return block;
}

__attribute__((noinline)) static strata_block in_another_place(size_t bytes)
{
    strata_block block = allocate(bytes, tag_b);
    kept++;
    return block;
}

typedef struct row {
    char function[128]; /* of those above, without what a compiler adds */
    strata_tag tag;
    strata_statistics_counters counters;
} row;

static row rows[MOST];
static size_t row_count;

static void find_function(const char *frame, void *data)
{
    row *to = data;
    if (!to->function[0] && strncmp(frame, "in_", 3) == 0)
        snprintf(to->function, sizeof to->function, "%.*s", (int)strcspn(frame, " ."), frame);
}

static void add(uint32_t call_stack, strata_tag tag, const strata_statistics_counters *counters, void *data)
{
    (void)data;
    assert_true(call_stack != 0 && row_count < MOST);
    row *to = &rows[row_count++];
    *to = (row){.tag = tag, .counters = *counters};
    strata_statistics_call_stack(call_stack, find_function, to);
}

static const row *row_of(const char *function)
{
    row_count = 0;
    check_ok(strata_statistics_visit_stacks(layer, add, NULL));
    for (size_t i = 0; i < row_count; i++)
        if (strcmp(rows[i].function, function) == 0)
            return &rows[i];
    fail_msg("no call stack of %s", function);
    return NULL;
}

static int build_with_stacks(void **state)
{
    (void)state;
    return build_text("statistics(stacks=on), null");
}

static void each_call_stack_has_its_own_counters(void **state)
{
    (void)state;
    strata_block blocks[4], other = in_another_place(5000);
    for (volatile size_t i = 0; i < 4; i++)
        blocks[i] = in_one_place(100);
    release(&blocks[0]);
    release(&blocks[1]);
    check_counter(row_of("in_one_place")->counters.bytes, 200, 400, 400);
    check_counter(row_of("in_one_place")->counters.blocks, 2, 4, 4);
    assert_int_equal(row_of("in_one_place")->counters.requested, 400);
    assert_int_equal(row_of("in_one_place")->tag, tag_a);
    check_counter(row_of("in_another_place")->counters.bytes, 5000, 5000, 5000);
    assert_int_equal(row_of("in_another_place")->tag, tag_b);
    assert_int_equal(row_count, 2);
    release(&blocks[2]);
    release(&blocks[3]);
    release(&other);
    check_counter(row_of("in_one_place")->counters.bytes, 0, 400, 400);
    check_counter(row_of("in_another_place")->counters.blocks, 0, 1, 1);
}

static void a_free_that_fails_changes_nothing(void **state)
{
    (void)state;
    strata_block block = in_one_place(100), wrong = block;
    wrong.bytes = 77;
    assert_int_not_equal(strata_resource_deallocate(top, &wrong, NULL), STRATA_SUCCESS);
    check_counter(row_of("in_one_place")->counters.bytes, 100, 100, 100);
    check_counter(row_of("in_one_place")->counters.blocks, 1, 1, 1);
    release(&block);
    check_counter(row_of("in_one_place")->counters.blocks, 0, 1, 1);
}

static void in_an_entered_scope_both_count(void **state)
{
    (void)state;
    strata_statistics_scope *scope, *before;
    strata_statistics_counters counters;
    check_ok(strata_statistics_scope_open(layer, NULL, "phase", &scope));
    check_ok(strata_statistics_scope_enter(layer, scope, &before));
    strata_block block = in_one_place(100);
    check_ok(strata_statistics_scope_enter(layer, before, NULL));
    check_counter(row_of("in_one_place")->counters.bytes, 100, 100, 100);
    check_ok(strata_statistics_scope_read(scope, &counters));
    check_counter(counters.bytes, 100, 100, 100);
    release(&block);
    check_counter(row_of("in_one_place")->counters.bytes, 0, 100, 100);
    check_ok(strata_statistics_scope_close(scope, &counters));
    check_counter(counters.bytes, 0, 100, 100);
}

static void a_reset_sets_their_peaks_too(void **state)
{
    (void)state;
    strata_block blocks[2];
    for (volatile size_t i = 0; i < 2; i++)
        blocks[i] = in_one_place(100);
    release(&blocks[0]);
    check_ok(strata_statistics_reset_peaks(layer));
    check_counter(row_of("in_one_place")->counters.bytes, 100, 100, 200);
    check_counter(row_of("in_one_place")->counters.blocks, 1, 1, 2);
    release(&blocks[1]);
}

static void without_the_option_there_are_none(void **state)
{
    (void)state;
    strata_block block = in_one_place(100);
    row_count = 0;
    check_ok(strata_statistics_visit_stacks(layer, add, NULL));
    assert_int_equal(row_count, 0);
    release(&block);
}

static void *take_and_release(void *data)
{
    for (size_t i = 0; i < *(const size_t *)data; i++) {
        strata_block block = in_one_place(64);
        release(&block);
    }
    return NULL;
}

static void threads_of_one_place_add_up(void **state)
{
    (void)state;
    size_t times = 500;
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_release, &times), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    const strata_statistics_counters *counters = &row_of("in_one_place")->counters;
    assert_int_equal(counters->blocks.total, 4 * 500);
    assert_int_equal(counters->blocks.current, 0);
    assert_int_equal(counters->bytes.current, 0);
    assert_in_range(counters->blocks.peak, 1, 4);
}

/* A runtime's own frees go another way than those of a stack: blocks with a tag, and without. */
static void a_runtimes_frees_count_too(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    const strata_tag tags[] = {0, tag_a};
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "statistics(stacks=on), pool"}, &runtime));
    strata_resource *statistics = strata_stack_layer(strata_runtime_stack(runtime), "statistics", 0);
    for (volatile size_t i = 0; i < 8; i++) {
        check_ok(strata_runtime_allocate_request(runtime, &(strata_request){.bytes = 512, .tag = tags[i % 2]}, &block));
        check_ok(strata_runtime_deallocate(runtime, &block));
    }
    row_count = 0;
    check_ok(strata_statistics_visit_stacks(statistics, add, NULL));
    for (size_t i = 0; i < row_count; i++) {
        assert_int_equal(rows[i].counters.blocks.current, 0);
        assert_int_equal(rows[i].counters.bytes.current, 0);
        assert_int_equal(rows[i].counters.bytes.peak, 512);
    }
    assert_int_not_equal(row_count, 0);
    check_ok(strata_runtime_destroy(runtime));
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    assert_int_equal(strata_statistics_visit_stacks(layer, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(strata_statistics_visit_stacks(NULL, add, NULL), STRATA_ERROR_INVALID_VALUE);
}

int main(void)
{
    if (!test_has_symbols())
        return 77;
    test_open_driver();
    if (!make_tags())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_call_stack_has_its_own_counters, build_with_stacks, end),
        cmocka_unit_test_setup_teardown(a_free_that_fails_changes_nothing, build_with_stacks, end),
        cmocka_unit_test_setup_teardown(in_an_entered_scope_both_count, build_with_stacks, end),
        cmocka_unit_test_setup_teardown(a_reset_sets_their_peaks_too, build_with_stacks, end),
        cmocka_unit_test_setup_teardown(threads_of_one_place_add_up, build_with_stacks, end),
        cmocka_unit_test_setup_teardown(a_runtimes_frees_count_too, build_with_stacks, end),
        cmocka_unit_test_setup_teardown(wrong_arguments_are_refused, build_with_stacks, end),
        cmocka_unit_test_setup_teardown(without_the_option_there_are_none, build, end),
    };
    return cmocka_run_group_tests_name("stack_counters", tests, NULL, NULL);
}
