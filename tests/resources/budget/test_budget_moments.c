/* The file of a shared budget where something comes between two steps: another process reuses its bytes, a signal
 * interrupts. The linker puts the functions here in front of the others (--wrap). */
#include "support/budget_files.h"

#include <errno.h>

static unsigned until_reuse; /* calls until another process holds more than the limit; 0: it does not */
static unsigned interruptions;

uint64_t __real_shared_held_by_all(const budget_shared *shared);
uint64_t __wrap_shared_held_by_all(const budget_shared *shared);
int __real_posix_fallocate(int descriptor, off_t at, off_t bytes);
int __wrap_posix_fallocate(int descriptor, off_t at, off_t bytes);

uint64_t __wrap_shared_held_by_all(const budget_shared *shared)
{
    const uint64_t held = __real_shared_held_by_all(shared);
    return until_reuse && --until_reuse == 0 ? held + LIMIT : held;
}

int __wrap_posix_fallocate(int descriptor, off_t at, off_t bytes)
{
    if (!interruptions)
        return __real_posix_fallocate(descriptor, at, bytes);
    interruptions--;
    return EINTR;
}

static void a_lease_grows_no_further_than_needed_when_others_hold_more_than_the_limit(void **state)
{
    (void)state;
    budget_shared *shared = open_budget("reuse");
    until_reuse = 2; /* the first call found room */
    assert_true(shared_make_room(shared, LIMIT / 2, 0));
    assert_int_equal(until_reuse, 0);
    assert_true(shared_slot_of(shared)->lease == (int64_t)LIMIT / 2);
    shared_close(shared);
}

static void a_signal_while_the_file_is_made_is_no_error(void **state)
{
    (void)state;
    interruptions = 3;
    budget_shared *shared = open_budget("signal");
    assert_int_equal(interruptions, 0);
    shared_close(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_grows_no_further_than_needed_when_others_hold_more_than_the_limit),
        cmocka_unit_test(a_signal_while_the_file_is_made_is_no_error),
    };
    if (!mkdtemp(directory))
        return 1;
    setenv("STRATA_SHARED_DIR", directory, 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(own_path("reuse"));
    remove(own_path("signal"));
    remove(directory);
    return failed;
}
