/* A shared budget, which the process keeps open, beside resets of the primary context. Each case resets the context of
 * a process of its own. */
#include "support/resets.h"

#include <string.h>

static void count_writes(const char *name, uint64_t count, void *data)
{
    if (strcmp(name, "cuStreamWriteValue64") == 0)
        *(uint64_t *)data += count;
}

static uint64_t writes_so_far(void)
{
    uint64_t count = 0;
    strata_driver_visit_calls(count_writes, &count);
    return count;
}

/* Frees that the streams report to other processes. */
static void free_often(strata_runtime *runtime)
{
    CUstream stream;
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    for (int i = 0; i < 8; i++) {
        strata_block block;
        child_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
        child_ok(strata_runtime_deallocate(runtime, &block));
    }
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_reap_pending(runtime));
}

static void child_a_shared_budget_writes_nowhere_after_a_reset(void)
{
    scene *of = scene_of_child();
    strata_runtime *before, *after;
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &before));
    free_often(before);
    const uint64_t writes = writes_so_far();
    if (!writes)
        exit(77); /* the driver does not map the words */
    reset(of);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &after));
    free_often(after);
    child_check(writes_so_far() == writes);
    child_ok(strata_runtime_destroy(after));
    child_ok(strata_runtime_destroy(before));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &after));
    free_often(after);
    child_check(writes_so_far() > writes); /* the file was opened anew */
    child_ok(strata_runtime_destroy(after));
}

static strata_budget_account *base_of(strata_runtime *runtime)
{
    return strata_budget_base(strata_stack_layer(strata_runtime_stack(runtime), "budget", 0));
}

static uint64_t shared_use(strata_runtime *runtime)
{
    strata_budget_usage usage;
    child_ok(strata_budget_account_usage(base_of(runtime), &usage));
    return usage.in_use;
}

/* A live block, one of an account, and one whose free waits for a stream; a reservation stays until it is closed. */
static void child_a_shared_budget_forgets_what_a_reset_has_ended(void)
{
    scene *of = scene_of_child();
    strata_runtime *before, *after;
    strata_budget_account *tenant, *reservation;
    strata_block freed;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &before));
    child_ok(strata_budget_account_open(base_of(before), &(strata_budget_account_options){.name = "tenant"}, &tenant));
    child_ok(strata_budget_reserve(base_of(before), SMALL, "reservation", &reservation));
    child_ok(strata_runtime_allocate(before, BYTES, NULL, &of->live));
    child_ok(strata_runtime_allocate_request(before, &(strata_request){.bytes = BYTES, .account = tenant}, &of->other));
    child_ok(strata_runtime_allocate(before, BYTES, NULL, &freed));
    child_check(strata_cu.MemsetD8Async(freed.address, 1, BYTES, NULL) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate(before, &freed));
    reset(of);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &after));
    child_check(shared_use(after) == SMALL);
    child_ok(strata_runtime_deallocate(before, &of->live));
    child_ok(strata_budget_account_close(reservation));
    child_check(shared_use(after) == 0);
    child_ok(strata_budget_account_close(tenant));
    child_ok(strata_runtime_deallocate(before, &of->other));
    child_ok(strata_runtime_destroy(before));
    child_check(shared_use(after) == 0);
    child_ok(strata_runtime_allocate(after, BYTES, NULL, &of->live));
    child_check(shared_use(after) == BYTES);
}

/* The driver's pool keeps the memory, which can be freed once the context has begun anew: the next stack does that. */
static void child_a_shared_budget_keeps_what_outlives_a_reset(void)
{
    scene *of = scene_of_child();
    strata_runtime *before, *beside, *after;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &before));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &beside)); /* keeps the file */
    child_ok(strata_runtime_allocate(before, BYTES, NULL, &of->live));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    if (of->when == ENDED)
        child_ok(strata_runtime_destroy(before));
    child_check(shared_use(beside) >= BYTES);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &after));
    child_check(shared_use(after) == (of->when == ENDED ? BYTES : 0)); /* the stack that has ended cannot give it */
    if (of->when == ENDED)
        return;
    child_ok(strata_runtime_deallocate(before, &of->live));
    child_ok(strata_runtime_destroy(before));
    child_check(shared_use(after) == 0);
}

static void with_shared_budgets(const char *scenario, const char *const *stacks, size_t count)
{
    char directory[] = "/tmp/strata-resets-XXXXXX", command[64];
    assert_non_null(mkdtemp(directory));
    setenv("STRATA_SHARED_DIR", directory, 1);
    run_on(scenario, stacks, count);
    unsetenv("STRATA_SHARED_DIR");
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

static void a_shared_budget_writes_nowhere_after_a_reset(void **state)
{
    (void)state;
    static const char *const stacks[] = {"budget(limit=64MiB, shared=reset), async"};
    with_shared_budgets("child_a_shared_budget_writes_nowhere_after_a_reset", stacks, 1);
}

static void a_shared_budget_forgets_what_a_reset_has_ended(void **state)
{
    (void)state;
    static const char *const stacks[] = {"budget(limit=64MiB, shared=reset), pool",
                                         "budget(limit=64MiB, shared=reset), direct"};
    with_shared_budgets("child_a_shared_budget_forgets_what_a_reset_has_ended", stacks, 2);
}

static void a_shared_budget_keeps_what_outlives_a_reset(void **state)
{
    (void)state;
    static const char *const stacks[] = {"budget(limit=64MiB, shared=reset), async"};
    with_shared_budgets("child_a_shared_budget_keeps_what_outlives_a_reset", stacks, 1);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(child_a_shared_budget_writes_nowhere_after_a_reset),
        TEST_SCENARIO(child_a_shared_budget_forgets_what_a_reset_has_ended),
        TEST_SCENARIO(child_a_shared_budget_keeps_what_outlives_a_reset),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_budget_writes_nowhere_after_a_reset),
        cmocka_unit_test(a_shared_budget_forgets_what_a_reset_has_ended),
        cmocka_unit_test(a_shared_budget_keeps_what_outlives_a_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
