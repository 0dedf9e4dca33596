/* What the program asked for is on record, whichever layer refuses it, and what Strata does by itself is not mixed with
 * it. */
#include "support/fixture.h"

#include <stdio.h>

enum { ROOM = 1024 };

static strata_log_record records[ROOM];
static size_t count;
static strata_stack *stack;
static strata_resource *top;

static void build_stack(const char *text)
{
    check_ok(strata_stack_create(text, 0, &stack));
    top = strata_stack_top(stack);
}

static int end_stack(void **state)
{
    (void)state;
    strata_status status = stack ? strata_stack_destroy(stack) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        print_error("%s\n", strata_last_error()->message);
    stack = NULL;
    return status != STRATA_SUCCESS;
}

static size_t count_of(strata_log_kind kind, strata_status status)
{
    size_t found = 0;
    check_ok(strata_logging_take(top, records, ROOM, &count));
    for (size_t i = 0; i < count; i++)
        found += records[i].kind == kind && records[i].status == status;
    return found;
}

static uint64_t value_of(const char *name)
{
    uint64_t value;
    check_ok(strata_control(stack, name, &value, NULL));
    return value;
}

static void a_request_that_a_layer_above_refuses_is_on_record_and_counted_once(void **state)
{
    (void)state;
    static const struct {
        const char *above;
        size_t bytes;
        strata_status status;
    } cases[] = {
        {"budget(limit=1MiB)", (1 << 20) + 1, STRATA_ERROR_OUT_OF_BUDGET},
        {"budget(limit=1MiB, wait=none)", (1 << 20) + 1, STRATA_ERROR_OUT_OF_BUDGET},
        {"fault(every=1)", 100, STRATA_ERROR_OUT_OF_MEMORY},
        {"fault(every=1, status=out_of_budget)", 100, STRATA_ERROR_OUT_OF_BUDGET},
        {"fixed(bytes=64KiB, larger=refuse)", 1 << 20, STRATA_ERROR_OUT_OF_MEMORY},
        {"aligned(alignment=4KiB)", SIZE_MAX - 100, STRATA_ERROR_OUT_OF_MEMORY},
        {"budget, logging(format=null), budget(limit=100B), statistics", 101, STRATA_ERROR_OUT_OF_BUDGET},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        strata_block block;
        snprintf(text, sizeof text, "%s, logging(format=memory, interval=60s), statistics, null", cases[i].above);
        print_message("%s\n", text);
        build_stack(text);
        const strata_request request = {.bytes = cases[i].bytes};
        check_status(strata_resource_allocate(top, &request, &block), cases[i].status);
        assert_int_equal(strata_last_error()->status, cases[i].status);
        assert_int_equal(count_of(STRATA_LOG_ALLOCATE, cases[i].status), 1);
        assert_int_equal(count, 1);
        assert_int_equal(records[0].requested, cases[i].bytes);
        strata_resource *statistics = NULL;
        for (size_t k = 0; strata_stack_layer(stack, "statistics", k); k++) {
            statistics = strata_stack_layer(stack, "statistics", k);
            assert_int_equal(strata_statistics_failures(statistics, cases[i].status), 1);
        }
        assert_non_null(statistics);
        assert_int_equal(end_stack(NULL), 0);
    }
}

static void a_request_that_the_owner_refuses_has_one_record(void **state)
{
    (void)state;
    strata_block block;
    build_stack("budget(limit=1MiB), logging(format=memory, interval=60s), statistics, fault(every=1), null");
    check_status(strata_resource_allocate(top, &(strata_request){.bytes = 100}, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(count_of(STRATA_LOG_ALLOCATE, STRATA_ERROR_OUT_OF_MEMORY), 1);
    assert_int_equal(value_of("statistics.failures"), 1);
}

static void refuse_in(const char *text)
{
    strata_block block;
    build_stack(text);
    check_status(strata_resource_allocate(top, &(strata_request){.bytes = (1 << 20) + 1}, &block),
                 STRATA_ERROR_OUT_OF_BUDGET);
}

/* A request of half the limit that does not fit makes the budget reap and trim. */
static void fill_and_refuse(const char *text)
{
    strata_block first, second;
    const strata_request request = {.bytes = 600000};
    build_stack(text);
    check_ok(strata_resource_allocate(top, &request, &first));
    check_status(strata_resource_allocate(top, &request, &second), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(strata_resource_deallocate(top, &first, NULL));
}

static size_t of_reaps_and_trims(void)
{
    size_t reaps = count_of(STRATA_LOG_REAP, STRATA_SUCCESS);
    for (size_t i = 0; i < count; i++)
        reaps += records[i].kind == STRATA_LOG_TRIM;
    return reaps;
}

static void reaps_that_the_program_did_not_ask_for_are_not_in_its_log(void **state)
{
    (void)state;
    size_t bytes;
    fill_and_refuse("budget(limit=1MiB), logging(format=memory, interval=60s), statistics, null");
    assert_int_equal(of_reaps_and_trims(), 0);
    assert_int_equal(count, 3);
    check_ok(top->ops->reap(top, STRATA_REAP_FINISHED, &bytes));
    check_ok(top->ops->trim(top, 0, &bytes));
    assert_int_equal(of_reaps_and_trims(), 2);
    assert_int_equal(end_stack(NULL), 0);
    refuse_in("failure_callback(retries=3), logging(format=memory, interval=60s), budget(limit=1MiB), null");
    assert_int_equal(of_reaps_and_trims(), 0);
    assert_int_equal(count, 4);
}

static void an_option_puts_them_on_record(void **state)
{
    (void)state;
    fill_and_refuse("budget(limit=1MiB), logging(format=memory, interval=60s, internal=on), statistics, null");
    assert_true(of_reaps_and_trims() > 0);
    assert_int_equal(end_stack(NULL), 0);
    refuse_in("failure_callback(retries=3), logging(format=memory, interval=60s, internal=on), budget(limit=1MiB), "
              "null");
    assert_int_equal(of_reaps_and_trims(), 6);
}

int main(void)
{
    test_open_driver();
#define HERE(test) cmocka_unit_test_teardown(test, end_stack)
    const struct CMUnitTest tests[] = {
        HERE(a_request_that_a_layer_above_refuses_is_on_record_and_counted_once),
        HERE(a_request_that_the_owner_refuses_has_one_record),
        HERE(reaps_that_the_program_did_not_ask_for_are_not_in_its_log),
        HERE(an_option_puts_them_on_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
