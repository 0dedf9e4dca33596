/* What few programs do, under `strata exec`: each was once answered or ordered wrongly. */
#include "support/driver.h"
#include "support/exec.h"

/* ---- order ---- */

static void new_memory_under_a_guard_can_be_written_on_any_stream(void **state)
{
    (void)state;
    setenv("STRATA_SIM_POLICY", "late", 1);
    check(run_under("--guard", "corners fresh"), 0, "0 wrong\n0 wrong\n0 wrong\n", "");
    check_same("--stack guard(kernel=off),pool", "corners fresh", "corners fresh");
    unsetenv("STRATA_SIM_POLICY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_memory_under_a_guard_can_be_written_on_any_stream),
    };
    return cmocka_run_group_tests_name("exec_corners", tests, find_folders, forget_folders);
}
