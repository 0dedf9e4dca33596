/* pool: the options and values of decay, and their refusals. */
#include "support/beside.h"
#include "support/pool_decay.h"

/* ---- options ---- */

static size_t reserved_after_all(strata_runtime *runtime, CUstream stream)
{
    strata_block block;
    strata_usage usage;
    check_ok(strata_runtime_allocate(runtime, 64 * MIB, stream, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
    for (int i = 0; i < 2; i++) {
        pass(100);
        check_ok(strata_runtime_reap_pending(runtime));
    }
    check_ok(strata_runtime_usage(runtime, &usage));
    check_ok(strata_runtime_destroy(runtime));
    return usage.reserved_bytes;
}

static void options_say_how_much_is_kept(test_fixture *fixture)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {
        {"pool", 0},
        {"pool, direct", 0},
        {"pool(decay=0)", 64 * MIB},
        {"pool(decay=0), direct", 64 * MIB},
        {"pool(chunk=2MiB, release_threshold=8MiB)", 8 * MIB},
        {"pool(chunk=2MiB, decay=0, release_threshold=8MiB)", 8 * MIB},
        {"pool(decay=0, release_all=on)", 0},
        {"pool(chunk=2MiB, decay=0, release_all=on, initial_size=32MiB)", 32 * MIB},
        {"pool(decay=1000s)", 0},
        {"pool(chunk=2MiB, decay=1000s, initial_size=32MiB)", 32 * MIB},
        {"pool(chunk=2MiB, decay=1000s, release_threshold=16MiB)", 16 * MIB},
        {"pool(deterministic=on)", 64 * MIB},
        {"pool(chunk=2MiB, deterministic=on, release_threshold=16MiB)", 16 * MIB},
        {"pool(opportunistic=off, decay=1000s)", 0},
        {"pool(decay=9000000000s)", 64 * MIB},
    };
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        strata_runtime *runtime;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = cases[i].text}, &runtime));
        const size_t bytes = reserved_after_all(runtime, stream);
        if (bytes != cases[i].bytes)
            fail_msg("%s: %zu bytes instead of %zu", cases[i].text, bytes, cases[i].bytes);
    }
}

/* The window of a pool that was made by options of C. */
static uint64_t window_of(const strata_pool_options *options)
{
    strata_resource *resource;
    strata_stack *stack;
    uint64_t window = 77;
    check_ok(strata_pool_create(0, options, &resource));
    check_ok(strata_stack_build(&resource, 1, 0, &stack));
    check_ok(strata_control(stack, "pool.decay", &window, NULL));
    check_ok(strata_stack_destroy(stack));
    return window;
}

static void memory_decays_in_ten_seconds_unless_an_option_says_otherwise(test_fixture *fixture)
{
    (void)fixture;
    assert_int_equal(window_of(NULL), 10 * SECOND);
    assert_int_equal(window_of(&(strata_pool_options){.decay = 3 * SECOND}), 3 * SECOND);
    assert_int_equal(window_of(&(strata_pool_options){.decay = STRATA_NEVER}), 0);
    assert_int_equal(window_of(&(strata_pool_options){.deterministic = true}), 0);
    assert_int_equal(window_of(&(strata_pool_options){.deterministic = true, .decay = STRATA_NEVER}), 0);
}

static void options_that_exclude_each_other_are_refused(test_fixture *fixture)
{
    strata_stack *stack;
    strata_resource *resource;
    (void)fixture;
    check_status(strata_stack_create("pool(deterministic=on, decay=1s)", 0, &stack), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "deterministic");
    check_status(strata_stack_create("pool(release_all=on, release_threshold=1GiB)", 0, &stack),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "release_all");
    check_status(strata_stack_create("pool(decay=0h)", 0, &stack), STRATA_ERROR_SYNTAX);
    check_status(strata_pool_create(0, &(strata_pool_options){.deterministic = true, .decay = 1}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_stack_create("pool(deterministic=on)", 0, &stack));
    check_status(strata_control(stack, "pool.decay", NULL, &(uint64_t){SECOND}), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "deterministic");
    check_ok(strata_control(stack, "pool.decay", NULL, &(uint64_t){0}));
    check_ok(strata_stack_destroy(stack));
}

static void both_can_be_read_and_set(test_fixture *fixture)
{
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    assert_int_equal(value_of(fixture->runtime, "pool.decay"), 0);
    assert_int_equal(value_of(fixture->runtime, "pool.release_threshold"), 0);
    check_ok(strata_control_set_text(stack, "pool.decay", "250ms"));
    check_ok(strata_control_set_text(stack, "pool.release_threshold", "3GiB"));
    assert_int_equal(value_of(fixture->runtime, "pool.decay"), SECOND / 4);
    assert_int_equal(value_of(fixture->runtime, "pool.release_threshold"), 3072 * MIB);
}

/* ---- without host memory ---- */

static void set_decay(void *stack)
{
    strata_control(stack, "pool.decay", NULL, &(uint64_t){0});
}

static void a_refused_decay_is_logged_while_other_threads_set_it(test_fixture *fixture)
{
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    test_beside beside;
    test_beside_begin(&beside, set_decay, stack);
    drought = true;
    const strata_status status = strata_control(stack, "pool.decay", NULL, &(uint64_t){SECOND});
    drought = false;
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
}

static void without_host_memory_decay_is_refused(test_fixture *fixture)
{
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    strata_resource *resource;
    drought = true;
    strata_status set_status = strata_control(stack, "pool.decay", NULL, &(uint64_t){SECOND});
    strata_status made = strata_pool_create(0, &(strata_pool_options){.decay = SECOND}, &resource);
    drought = false;
    check_status(set_status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    check_status(made, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    assert_null(resource);
    assert_int_equal(value_of(fixture->runtime, "pool.decay"), 0);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    make_slow_calls(fixture, 4, stream);
}

int main(void)
{
    static const char *const stacks[] = {"pool(chunk=2MiB, decay=0)"};
    static const test_case cases[] = {
        TEST_CASE(options_say_how_much_is_kept),
        TEST_CASE(memory_decays_in_ten_seconds_unless_an_option_says_otherwise),
        TEST_CASE(options_that_exclude_each_other_are_refused),
        TEST_CASE(both_can_be_read_and_set),
        TEST_CASE(a_refused_decay_is_logged_while_other_threads_set_it),
        TEST_CASE(without_host_memory_decay_is_refused),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
