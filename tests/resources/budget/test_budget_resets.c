/* budget: requests that wait while another thread resets the device. Each case resets that of a process of its own. */
#include "support/child.h"
#include "support/driver.h"

#include <strata/budget.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MIB = 1 << 20 };

static strata_runtime *runtime;

static void *reset_later(void *anew)
{
    CUcontext context;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    if (anew)
        child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    return NULL;
}

static void child_a_request_waits_no_longer_than_until_a_reset(void)
{
    strata_block live, block;
    strata_budget_usage usage;
    pthread_t thread;
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = getenv("TEST_STACK")}, &runtime));
    child_ok(strata_runtime_allocate(runtime, 3 * MIB, NULL, &live));
    child_check(pthread_create(&thread, NULL, reset_later, getenv("TEST_ANEW")) == 0);
    child_status(strata_runtime_allocate(runtime, 3 * MIB, NULL, &block), STRATA_ERROR_DEVICE_RESET);
    child_check_words("was reset");
    child_check(pthread_join(thread, NULL) == 0);
    child_check(block.address == 0);
    strata_budget_account *account = strata_budget_base(strata_stack_top(strata_runtime_stack(runtime)));
    child_ok(strata_budget_account_usage(account, &usage));
    child_check(usage.waited == 1 && usage.refused == 0);
    child_ok(strata_runtime_deallocate(runtime, &live));
    child_ok(strata_runtime_destroy(runtime));
}

static void a_request_waits_no_longer_than_until_a_reset(void **state)
{
    (void)state;
    static const char *const stacks[] = {"TEST_STACK=budget(limit=5MiB, wait=live, timeout=50s), pool",
                                         "TEST_STACK=budget(limit=5MiB, wait=live), direct",
                                         "TEST_STACK=budget(limit=5MiB, wait=live), guard, async"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        for (int anew = 0; anew < 2; anew++) {
            const char *const changes[] = {stacks[i], anew ? "TEST_ANEW=1" : "TEST_ANEW", NULL};
            printf("%s, %s\n", stacks[i], anew ? "begun anew" : "ended");
            test_child_run("child_a_request_waits_no_longer_than_until_a_reset", changes);
        }
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(child_a_request_waits_no_longer_than_until_a_reset)};
    test_child_begin(count, arguments, scenarios, 1);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_request_waits_no_longer_than_until_a_reset)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
