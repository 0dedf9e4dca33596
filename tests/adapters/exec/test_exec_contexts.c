/* Programs with several contexts of a device, and with resets, under `strata exec`. */
#include "support/driver.h"
#include "support/exec.h"

/* ---- budgets ---- */

static void one_budget_is_for_all_contexts_of_a_device(void **state)
{
    (void)state;
    check(run_under("--budget 100MiB", "contexts kept-memory"), 0, " 0 2 0 2 0 2 0 2 0 0\n", "");
    check(run_under("--budget 100MiB", "contexts kept-handle"), 0, " 0 2 0 2 0 2 0\n", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_budget_is_for_all_contexts_of_a_device),
    };
    return cmocka_run_group_tests_name("exec_contexts", tests, find_folders, forget_folders);
}
