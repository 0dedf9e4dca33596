/* fixed and binning: which bin a request gets, what is refused, and what a report tells. */
#include <string.h>

#include "support/binning.h"

/* ---- bins ---- */

static void a_request_gets_the_smallest_bin_that_is_large_enough(test_fixture *fixture)
{
    static const struct {
        const char *stack;
        size_t asked, given;
    } rows[] = {
        {"binning(min=1KiB, max=8KiB), async", 1, 1024},
        {"binning(min=1KiB, max=8KiB), async", 1024, 1024},
        {"binning(min=1KiB, max=8KiB), async", 1025, 2048},
        {"binning(min=1KiB, max=8KiB), async", 4097, 8192},
        {"binning(min=1KiB, max=8KiB), async", 8193, 8193},
        {"binning, async", 1, 256 * KIB},
        {"binning, async", 3 << 20, 4 << 20},
        {"binning(min=8MiB), async", 1, 8 << 20},
        {"binning(max=64KiB), async", 1, 64 * KIB},
        {"binning(bins=1KiB;4KiB;64KiB), async", 1025, 4096},
        {"binning(bins=\"700;5 KiB\"), async", 700, 768},
        {"binning(bins=\"700;5 KiB\"), async", 769, 5120},
        {"fixed, async", 1, 1 << 20},
        {"fixed(bytes=1000), async", 1, 1024},
        {"fixed(bytes=1000), async", 1024, 1024},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        use_stack(fixture, rows[i].stack);
        strata_block block = test_allocate(fixture, rows[i].asked, NULL);
        size_t charge;
        strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
        check_ok(top->ops->charge(top, &(strata_request){.bytes = rows[i].asked}, &charge));
        if (block.bytes != rows[i].given || (rows[i].given != rows[i].asked && charge != rows[i].given))
            fail_msg("%s: %zu bytes for %zu, %zu expected, %zu charged", rows[i].stack, block.bytes, rows[i].asked,
                     rows[i].given, charge);
        test_free_on(fixture, &block, NULL);
    }
}

static void larger_requests_are_refused_where_that_is_asked_for(test_fixture *fixture)
{
    strata_block block;
    use_stack(fixture, "fixed(bytes=64KiB, larger=refuse), async");
    check_status(strata_runtime_allocate(fixture->runtime, BYTES + 1, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "exceeds the block size of 64 KiB (65536 bytes)");
    assert_true(strata_last_error()->requested == BYTES + 1 && strata_last_error()->limit == BYTES);
    block = test_allocate(fixture, BYTES, NULL);
    test_free_on(fixture, &block, NULL);
}

static void in_sanitizer_mode_every_block_is_one_of_the_owners(test_fixture *fixture)
{
    check_ok(strata_set_mode(STRATA_MODE_SANITIZER));
    strata_status made, status = strata_runtime_destroy(fixture->runtime);
    fixture->runtime = NULL;
    const strata_runtime_config config = {.stack_text = "binning(min=1KiB, max=64KiB), async"};
    made = strata_runtime_create(&config, &fixture->runtime);
    check_ok(strata_set_mode(STRATA_MODE_NORMAL));
    check_ok(status);
    check_ok(made);
    strata_block block = test_allocate(fixture, 1000, NULL);
    assert_true(block.bytes == 1000 && value(fixture, "binning.chunks") == 0 && value(fixture, "binning.passed") == 1);
    test_free_on(fixture, &block, NULL);
}

static void write_piece(const char *text, size_t length, void *data)
{
    strncat(data, text, length);
}

static void a_report_tells_of_each_bin(test_fixture *fixture)
{
    static char report[1 << 16];
    strata_block block = test_allocate(fixture, 3000, NULL);
    report[0] = '\0';
    check_ok(strata_stats_print(strata_runtime_stack(fixture->runtime), STRATA_FORMAT_JSON, write_piece, report));
    assert_non_null(strstr(report, "\"bins\""));
    assert_non_null(strstr(report, "\"live_blocks\""));
    test_free_on(fixture, &block, NULL);
}

/* ---- what is refused ---- */

static void bad_options_are_refused_with_their_place(test_fixture *fixture)
{
    static const struct {
        const char *text;
        strata_status status;
        const char *words;
    } rows[] = {
        {"fixed(bytes=4KiX), async", STRATA_ERROR_SYNTAX, "character 13"},
        {"fixed(larger=perhaps), async", STRATA_ERROR_SYNTAX, "pass|refuse"},
        {"fixed(bytes=1MiB, chunk=64KiB), async", STRATA_ERROR_INVALID_VALUE, "must have room for a block"},
        {"fixed(bytes=256, chunk=1GiB), async", STRATA_ERROR_INVALID_VALUE, "at most 1048576 blocks"},
        {"fixed(bytes=1000TiB), async", STRATA_ERROR_INVALID_VALUE, "expected less than 64 TiB"},
        {"fixed(chunk=1000TiB), async", STRATA_ERROR_INVALID_VALUE, "expected less than 64 TiB"},
        {"fixed(bytes=64KiB)", STRATA_ERROR_SYNTAX, "cannot be the last layer"},
        {"binning(min=1000), async", STRATA_ERROR_INVALID_VALUE, "powers of two"},
        {"binning(min=128), async", STRATA_ERROR_INVALID_VALUE, "at least 256 bytes"},
        {"binning(min=2MiB, max=1MiB), async", STRATA_ERROR_INVALID_VALUE, "min exceeds max"},
        {"binning(max=128TiB), async", STRATA_ERROR_INVALID_VALUE, "expected less than 64 TiB"},
        {"binning(min=1KiB, bins=1KiB), async", STRATA_ERROR_INVALID_VALUE, "cannot be combined with min and max"},
        {"binning(bins=1KiB;4KiX;8KiB), async", STRATA_ERROR_INVALID_VALUE, "character 6 (\"4KiX;8KiB\")"},
        {"binning(bins=1KiB;), async", STRATA_ERROR_INVALID_VALUE, "character 6"},
        {"binning(bins=0;1KiB), async", STRATA_ERROR_INVALID_VALUE, "bin 1 of 2"},
        {"binning(bins=4KiB;1KiB), async", STRATA_ERROR_INVALID_VALUE,
         "bin 2 of 2, 1 KiB (1024 bytes): bins must be in ascending"},
        {"binning(bins=1;256), async", STRATA_ERROR_INVALID_VALUE, "bin 2 of 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strata_stack *stack;
        check_status(strata_stack_create(rows[i].text, 0, &stack), rows[i].status);
        check_last_error(rows[i].status, rows[i].words);
        assert_null(stack);
    }
    strata_resource *made;
    uint64_t many[65];
    for (size_t i = 0; i < 65; i++)
        many[i] = 256 * (i + 1);
    check_status(strata_binning_create(&(strata_binning_options){.bins = many, .bin_count = 65}, &made),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "1 to 64 bins, not 65");
    check_status(strata_binning_create(&(strata_binning_options){.bin_count = 2}, &made), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "bins is NULL, but bin_count is 2");
    check_status(strata_binning_create(&(strata_binning_options){.bins = many}, &made), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fixed_create(&(strata_fixed_options){.larger = (strata_fixed_larger)2}, &made),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fixed_create(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_binning_create(&(strata_binning_options){.bins = many, .bin_count = 64}, &made));
    check_ok(strata_resource_destroy(made));
    (void)fixture;
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_request_gets_the_smallest_bin_that_is_large_enough),
        TEST_CASE(larger_requests_are_refused_where_that_is_asked_for),
        TEST_CASE(in_sanitizer_mode_every_block_is_one_of_the_owners),
        TEST_CASE(bad_options_are_refused_with_their_place),
    };
    static const test_case telling[] = {TEST_CASE(a_report_tells_of_each_bin)};
    static const char *const stacks[] = {"fixed(bytes=64KiB, chunk=256KiB), async"};
    static const char *const bins[] = {"binning, async"};
    test_open_driver();
    const int failed = test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
    return test_run_on(bins, 1, telling, 1) | failed;
}
