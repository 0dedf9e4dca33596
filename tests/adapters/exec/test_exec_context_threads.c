/* Programs whose threads use several contexts of a device, or reset it, under `strata exec`. */
#include "support/driver.h"
#include "support/effort.h"
#include "support/exec.h"

static void contexts_come_and_go_on_several_threads(void **state)
{
    (void)state;
    outcome *result = run_under("--budget 64MiB --json", "contexts threads");
    assert_outcome(result, 0, "went on\n", "");
    json_t *report = read_report(result);
    const json_t *budget = json_object_get(json_array_get(json_object_get(report, "devices"), 0), "budget");
    assert_int_equal(json_integer_value(json_object_get(budget, "in_use")), 0);
    json_decref(report);
    free(result);
}

static void children_of_threads_with_contexts_go_on(void **state)
{
    (void)state;
    skip_if_sanitized(); /* its own locks are held, too */
    check(run_under("", "contexts forks"), 0, "status 0\n", "");
}

/* Each finds the driver open, whichever has opened it. */
static void first_requests_of_several_threads_are_charged(void **state)
{
    (void)state;
    for (size_t i = 0; i < test_effort(100, 8); i++) {
        outcome *result = run_under("--fail-closed --budget 64MiB --json", "contexts begin");
        assert_outcome(result, 0, "went on\n", "");
        json_t *report = read_report(result);
        const json_t *budget = json_object_get(json_array_get(json_object_get(report, "devices"), 0), "budget");
        assert_int_equal(json_integer_value(json_object_get(budget, "in_use")), 8 << 20);
        json_decref(report);
        free(result);
    }
}

/* The device has a stack for some of them, and none for others. */
static void questions_beside_resets_are_answered(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        check(run_under("", text_of("contexts questions %zu", test_effort(300, 100))), 0, "went on\n", "");
}

/* Also while a stack is built. */
static void requests_beside_resets_are_served(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        outcome *result =
            run_under("--fail-closed --budget 64MiB", text_of("contexts requests %zu", test_effort(1500, 500)));
        assert_outcome(result, 0, "went on\n", "");
        assert_string_equal(result->err, "");
        free(result);
    }
}

/* Each is answered by the stack, or as one in a context that has ended. What is charged in the end is the one block. */
static void requests_beside_the_last_release_of_a_context_are_answered(void **state)
{
    (void)state;
    enum { BLOCK = 60 << 20 };
    static const char *const options[] = {"", "--stack async", "--stack direct", "--stack pool,direct"};
    /* Each of the contexts leaves a pool with a range of addresses as large as the device. The thread sanitizer leaves
     * a program fewer than 16 GiB for each of two hundred. */
    setenv("STRATA_SIM_MEMORY", "2GiB", 1);
    char words[40];
    snprintf(words, sizeof words, "contexts releases %zu", test_effort(200, 70));
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        outcome *result = run_under(text_of("--fail-closed --budget 100MiB %s --json", options[i]), words);
        assert_outcome(result, 0, " 0 2\n", "");
        json_t *report = read_report(result);
        const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
        assert_int_equal(json_integer_value(json_object_get(device, "live")), BLOCK);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(device, "budget"), "in_use")), BLOCK);
        json_decref(report);
        free(result);
    }
    check(run_under("--fail-closed --budget 100MiB --guard", words), 0, " 0 2\n", "");
    unsetenv("STRATA_SIM_MEMORY");
}

static json_int_t number_in(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* Each call is counted, and each charge given back, by whichever thread. */
static void what_threads_pass_on_is_counted(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        outcome *result = run_under("--budget 1GiB --json", text_of("contexts passed %zu", test_effort(20000, 2000)));
        assert_int_equal(result->status, 0);
        json_t *report = read_report(result);
        const json_t *physical = json_object_get(json_object_get(report, "passed_on_to_the_driver"), "physical");
        assert_int_equal(number_in(physical, "calls"), strtol(result->out, NULL, 10));
        assert_int_equal(number_in(physical, "live"), 0);
        const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
        assert_int_equal(number_in(json_object_get(device, "budget"), "in_use"), 0);
        json_decref(report);
        free(result);
    }
}

/* A request that waits for a budget holds up neither the reset nor, behind that, the free which it waits for. */
static void a_request_that_waits_is_ended_by_a_reset(void **state)
{
    (void)state;
    static const char *const layers[] = {"pool", "guard,pool", "direct"};
    static const char *const words[] = {"waits linear", "waits managed"};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        for (size_t w = 0; w < 2; w++)
            check(run_under(text_of("--stack budget(limit=5MiB,wait=live),%s", layers[i]), words[w]), 0, "went on\n",
                  "");
}

/* What a refused call has put back is another thread's to take out at once. */
static void mappings_end_beside_refused_calls(void **state)
{
    (void)state;
    check(run_under("", "races unmaps"), 0, "went on\n", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_come_and_go_on_several_threads),
        cmocka_unit_test(children_of_threads_with_contexts_go_on),
        cmocka_unit_test(first_requests_of_several_threads_are_charged),
        cmocka_unit_test(questions_beside_resets_are_answered),
        cmocka_unit_test(requests_beside_resets_are_served),
        cmocka_unit_test(requests_beside_the_last_release_of_a_context_are_answered),
        cmocka_unit_test(what_threads_pass_on_is_counted),
        cmocka_unit_test(a_request_that_waits_is_ended_by_a_reset),
        cmocka_unit_test(mappings_end_beside_refused_calls),
    };
    return cmocka_run_group_tests_name("exec_context_threads", tests, find_folders, forget_folders);
}
