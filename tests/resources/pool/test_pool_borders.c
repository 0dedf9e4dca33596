/* pool: its options at their limits, its report, and its refusals. */
#include <stdio.h>
#include <string.h>

#include "support/faults.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/refusals.h"
#include "support/sweep.h"

enum { REPORT = 1 << 18 };

static strata_runtime *runtime_of(const char *text)
{
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    return runtime;
}

/* ---- overhead ---- */

static strata_status create_with(const char *option, const char *value, strata_stack **stack)
{
    char text[64];
    snprintf(text, sizeof text, "pool(%s=%s)", option, value);
    return strata_stack_create(text, 0, stack);
}

static void an_overhead_is_a_number_of_thousandths(void **state)
{
    (void)state;
    strata_stack *stack;
    static const char *const names[] = {"overhead", "slack"}; /* the old name */
    for (size_t i = 0; i < 2; i++) {
        check_status(create_with(names[i], "1000001", &stack), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, "thousandths");
        static const char *const others[] = {"1GiB", "50%"};
        for (size_t j = 0; j < 2; j++) {
            check_status(create_with(names[i], others[j], &stack), STRATA_ERROR_SYNTAX);
            check_last_error(STRATA_ERROR_SYNTAX, "thousandths");
        }
        check_ok(create_with(names[i], "1000000", &stack));
        check_ok(strata_stack_destroy(stack));
    }
}

/* ---- other options ---- */

static void sizes_can_be_shares_of_the_device(void **state)
{
    (void)state;
    strata_device_info device;
    check_ok(strata_device_get_info(0, &device));
    strata_runtime *runtime = runtime_of("pool(max_size=50%, release_threshold=25%)");
    assert_true(value_of(runtime, "pool.limit") == device.total_bytes / 2);
    assert_true(value_of(runtime, "pool.release_threshold") == device.total_bytes / 4);
    check_ok(strata_runtime_destroy(runtime));
}

static void every_switch_takes_the_same_words(void **state)
{
    (void)state;
    static const char *const texts[] = {"pool(opportunistic=true, release_all=true, deterministic=no)",
                                        "pool(internal_dependencies=0, follow_event_dependencies=No)",
                                        "pool(opportunistic=DEFAULT, deterministic=1)", "pool(decay=0)",
                                        "pool(decay=0, deterministic=on)"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_ok(strata_runtime_destroy(runtime_of(texts[i])));
    strata_stack *stack;
    check_status(strata_stack_create("pool(opportunistic=yes, deterministic=on)", 0, &stack),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "opportunistic");
    check_status(strata_stack_create("pool(decay=soon)", 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "or 0 for never");
}

/* ---- refusals ---- */

static void check_refusal(const char *text, const strata_request *request, const char *words)
{
    strata_runtime *runtime = runtime_of(text);
    strata_block block;
    check_status(strata_runtime_allocate_request(runtime, request, &block), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, words);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "largest free block 0 bytes, ");
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "in 0 blocks");
    check_ok(strata_runtime_destroy(runtime));
}

static void a_refusal_says_what_of_the_limit_is_of_use(void **state)
{
    (void)state;
    check_refusal("pool(max_size=3MiB)", &(strata_request){.bytes = 5 << 19},
                  "In steps of 2 MiB (2097152 bytes), 2 MiB (2097152 bytes) fit within the limit");
    check_refusal("pool(max_size=3MiB)", &(strata_request){.bytes = 4 << 20}, "The request alone exceeds the limit");
    check_refusal("pool(max_size=64MiB)", &(strata_request){.bytes = 4096, .alignment = 128 << 20},
                  "With its alignment of 128 MiB (134217728 bytes)");
    test_fault_begin(TEST_FAULT_MEM_CREATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    check_refusal("pool", &(strata_request){.bytes = 4096}, "Free or trim memory, or wait for pending frees");
    assert_null(strstr(strata_last_error()->message, "raise the limit"));
    test_fault_end();
}

/* ---- the initial size ---- */

/* Only the simulated device is known to have less. */
static void without_its_initial_size_a_pool_serves_nothing(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool(initial_size=900TiB)", "pool(initial_size=900TiB), direct",
                                         "pool(initial_size=900TiB), budget(limit=64MiB), direct",
                                         "pool(initial_size=18446744073709551615)"};
    for (size_t i = 0; i < 4; i++) {
        strata_runtime *runtime = runtime_of(stacks[i]);
        strata_block block;
        const strata_status need = i == 2 ? STRATA_ERROR_OUT_OF_BUDGET : STRATA_ERROR_OUT_OF_MEMORY;
        for (int again = 0; again < 2; again++) {
            check_status(strata_runtime_allocate(runtime, 5000, NULL, &block), need);
            check_last_error(need, i < 3 ? "(989560464998400 bytes) cannot be reserved"
                                         : "(18446744073709551615 bytes) cannot be reserved");
            assert_true(strata_last_error()->requested == 5000 && !block.address);
        }
        assert_true(value_of(runtime, "pool.reserved") == 0 && value_of(runtime, "pool.free") == 0);
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void an_initial_size_beyond_the_device_is_refused_without_a_query_of_free_memory(void **state)
{
    (void)state;
    test_needs_simulated_driver("it refuses a call");
    strata_runtime *runtime = runtime_of("pool(initial_size=900TiB)");
    strata_block block;
    test_refuse("cuMemGetInfo", 1, 16, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_runtime_allocate(runtime, 5000, NULL, &block);
    test_refuse_no_more();
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(value_of(runtime, "pool.reserved") == 0);
    check_ok(strata_runtime_destroy(runtime));
}

static void an_initial_size_is_held_from_the_start_on(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool(initial_size=20000001)", "pool(initial_size=20000001), direct",
                                         "pool(initial_size=20000001, max_size=20000001)"};
    for (size_t i = 0; i < 3; i++) {
        strata_runtime *runtime = runtime_of(stacks[i]);
        strata_block block;
        assert_true(value_of(runtime, "pool.reserved") == (i == 2 ? 18 : 20) * MIB); /* whole granules of 2 MiB */
        check_ok(strata_runtime_allocate(runtime, MIB, NULL, &block));
        assert_true(value_of(runtime, "pool.reserved") == (i == 2 ? 18 : 20) * MIB);
        check_ok(strata_runtime_deallocate(runtime, &block));
        check_ok(strata_runtime_trim(runtime, 0, NULL));
        check_ok(strata_runtime_allocate(runtime, MIB, NULL, &block));
        assert_true(value_of(runtime, "pool.reserved") == (i == 2 ? 18 : 20) * MIB);
        check_ok(strata_runtime_deallocate(runtime, &block));
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* It was reserved once, so its absence refuses no request. */
static void a_returned_initial_size_is_made_again_if_there_is_memory(void **state)
{
    (void)state;
    strata_runtime *runtime = runtime_of("pool(initial_size=20MiB)");
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, 5000, NULL, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_trim(runtime, 0, NULL));
    test_fault_begin(TEST_FAULT_MEM_CREATE, 2, false, CUDA_ERROR_OUT_OF_MEMORY);
    check_ok(strata_runtime_allocate(runtime, 5000, NULL, &block));
    assert_int_equal(test_fault_end(), 1);
    assert_true(value_of(runtime, "pool.reserved") < 20 * MIB);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- free memory ---- */

/* Small blocks have memory of their own, so a large piece of it serves several. */
static size_t a_part_of(size_t free, size_t kept)
{
    const size_t most = kept < MIB ? MIB - 512 : SIZE_MAX;
    return free < most ? free : most;
}

/* In the thread's cache, for long or until the thread next needs the heap, or in a magazine for others. */
static void the_largest_free_extent_may_be_one_that_a_thread_keeps(test_fixture *fixture)
{
    static const size_t sizes[] = {1000, 100 * 1024, 3 * MIB, 48 * MIB};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < 8; i++) {
        strata_block kept = test_allocate(fixture, sizes[i / 2], stream), rest[64];
        size_t count = 0;
        for (size_t free; count < 64 && (free = value_of(fixture->runtime, "pool.free.largest")); count++)
            rest[count] = test_allocate(fixture, a_part_of(free, sizes[i / 2]), stream);
        assert_true(count < 64 && value_of(fixture->runtime, "pool.free") == 0);
        test_free_on(fixture, &kept, i % 2 ? other : stream);
        const strata_usage usage = test_usage(fixture);
        assert_true(usage.largest_free == kept.bytes && usage.reserved_free == kept.bytes);
        assert_true(value_of(fixture->runtime, "pool.free.largest") == kept.bytes);
        while (count)
            test_free_on(fixture, &rest[--count], stream);
        check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
        assert_true(value_of(fixture->runtime, "pool.free.largest") == 0);
    }
}

static void collect(const char *text, size_t length, void *data)
{
    char *all = data;
    const size_t room = REPORT - 1 - strlen(all);
    strncat(all, text, length < room ? length : room);
}

static size_t times_in(const char *text, const char *word)
{
    size_t times = 0;
    for (; (text = strstr(text, word)); text++)
        times++;
    return times;
}

static void a_text_counts_many_chunks_and_an_object_has_each(void **state)
{
    (void)state;
    enum { FEW = 100, MANY = 300 };
    static char text[REPORT];
    strata_runtime *runtime = runtime_of("pool(chunk=2MiB)");
    strata_stack *stack = strata_runtime_stack(runtime);
    strata_block few, more;
    check_ok(strata_runtime_allocate(runtime, FEW * 2 * MIB, NULL, &few));
    text[0] = '\0';
    check_ok(strata_stats_print(stack, STRATA_FORMAT_TEXT, collect, text));
    assert_true(times_in(text, "held") >= FEW && !strstr(text, "bytes_each"));
    check_ok(strata_runtime_allocate(runtime, (MANY - FEW) * 2 * MIB, NULL, &more));
    text[0] = '\0';
    check_ok(strata_stats_print(stack, STRATA_FORMAT_TEXT, collect, text));
    assert_int_equal(times_in(text, "bytes_each"), 1);
    assert_non_null(strstr(text, "300"));
    text[0] = '\0';
    check_ok(strata_stats_print(stack, STRATA_FORMAT_JSON, collect, text));
    assert_true(times_in(text, "\"held\": false") + times_in(text, "\"held\":false") == MANY);
    check_ok(strata_runtime_deallocate(runtime, &few));
    check_ok(strata_runtime_deallocate(runtime, &more));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- over null ---- */

static void a_pool_over_null_serves(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool, null", "binning, pool, null", "pool(chunk=8GiB), null"};
    for (size_t i = 0; i < 3; i++) {
        enum { COUNT = 60 };
        strata_runtime *runtime = runtime_of(stacks[i]);
        strata_block blocks[COUNT], found;
        for (int round = 0; round < 2; round++) {
            for (size_t j = 0; j < COUNT; j++) {
                check_ok(strata_runtime_allocate(runtime, (j % 5 + 1) << j % 34, NULL, &blocks[j]));
                check_ok(strata_runtime_find(runtime, blocks[j].address + blocks[j].bytes - 1, &found));
                assert_true(found.address == blocks[j].address);
            }
            for (size_t j = 0; j < COUNT; j++)
                check_ok(strata_runtime_deallocate(runtime, &blocks[j]));
        }
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* Each request has a number for its chunk while the layer below is asked. */
static void requests_that_the_layer_below_refuses_leave_no_numbers(void **state)
{
    (void)state;
    strata_runtime *runtime = runtime_of("pool, budget(limit=4MiB, wait=none), null");
    const pool *self = (const pool *)strata_stack_top(strata_runtime_stack(runtime));
    strata_block block;
    for (int i = 0; i < 100; i++)
        check_status(strata_runtime_allocate(runtime, 8 * MIB, NULL, &block), STRATA_ERROR_OUT_OF_BUDGET);
    assert_true(chunk_numbers(self) < 10);
    check_ok(strata_runtime_allocate(runtime, MIB, NULL, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

int main(void)
{
    static const char *const stacks[] = {"pool(decay=0)", "pool(decay=0), direct"};
    static const test_case cases[] = {TEST_CASE(the_largest_free_extent_may_be_one_that_a_thread_keeps)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overhead_is_a_number_of_thousandths),
        cmocka_unit_test(sizes_can_be_shares_of_the_device),
        cmocka_unit_test(every_switch_takes_the_same_words),
        cmocka_unit_test(a_refusal_says_what_of_the_limit_is_of_use),
        cmocka_unit_test(without_its_initial_size_a_pool_serves_nothing),
        cmocka_unit_test(an_initial_size_beyond_the_device_is_refused_without_a_query_of_free_memory),
        cmocka_unit_test(an_initial_size_is_held_from_the_start_on),
        cmocka_unit_test(a_returned_initial_size_is_made_again_if_there_is_memory),
        cmocka_unit_test(a_text_counts_many_chunks_and_an_object_has_each),
        cmocka_unit_test(a_pool_over_null_serves),
        cmocka_unit_test(requests_that_the_layer_below_refuses_leave_no_numbers),
    };
    test_open_driver();
    int failed = test_run_on(stacks, 2, cases, 1);
    return failed + (test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL));
}
