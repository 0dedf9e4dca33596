/* `strata exec --set-aside`: a part of the budget for what no call asks for, such as contexts and modules. */
#include "support/driver.h"
#include "support/exec.h"

/* The first element of a list of the report. */
static json_t *first_of(json_t *report, const char *list)
{
    json_t *first = json_array_get(json_object_get(report, list), 0);
    assert_non_null(first);
    return first;
}

static json_int_t mebibytes_at(const json_t *object, const char *name)
{
    const json_t *number = json_object_get(object, name);
    if (!number)
        print_error("no %s\n", name);
    assert_true(json_is_integer(number));
    return json_integer_value(number) >> 20;
}

static json_t *report_of(outcome *result, const char *in_out)
{
    assert_outcome(result, 0, in_out, "");
    json_t *report = read_report(result);
    free(result);
    return report;
}

/* ---- one process ---- */

static void what_is_set_aside_is_not_free_and_the_device_keeps_its_size(void **state)
{
    (void)state;
    check(run_under("--budget 100MiB --set-aside 36MiB", "answers"), 0,
          "device: 100 MiB\nat first: 64 of 100 MiB free\n", "");
    check(run_under("--budget 50% --set-aside 25%", "answers"), 0,
          "device: 8192 MiB\nat first: 4096 of 8192 MiB free\n", "");
    check(run_under("--set-aside 36MiB --stack budget(limit=100MiB),pool", "answers"), 0,
          "device: 100 MiB\nat first: 64 of 100 MiB free\n", "");
    check(run_under("--budget 8GiB --set-aside 25%", "answers"), 0,
          "device: 8192 MiB\nat first: 4096 of 8192 MiB free\n", "");
}

static void requests_into_what_is_set_aside_are_refused(void **state)
{
    (void)state;
    check(run_under("--budget 96MiB --set-aside 32MiB", "behaviour refused"), 0, "4 blocks, then 2\nand on\n", "");
    check(run_under("--budget 96MiB --set-aside 32MiB --stack async", "behaviour refused"), 0, "4 blocks, then 2", "");
    check(run_wider("--budget 100MiB --set-aside 37MiB", "external too-much"), 2,
          "import(64 * MIB, export_memory(), &first) gave 2\n", "");
    check(run_under("--budget 132MiB --set-aside 32MiB", "behaviour context"), 0,
          "32 MiB less free, byte 9\ntoo much gave 2\n", "");
}

static void the_report_says_what_was_set_aside_and_what_was_needed(void **state)
{
    (void)state;
    json_t *report = report_of(run_wider("--budget 1GiB --set-aside 524MiB --json", "external hidden"),
                               "500 MiB free, 1000 MiB: 2\n");
    const json_t *device = first_of(report, "devices"), *refusal = first_of(report, "refusals");
    assert_int_equal(mebibytes_at(device, "not_accounted_for"), 500);
    assert_int_equal(mebibytes_at(device, "set_aside"), 524);
    assert_int_equal(mebibytes_at(json_object_get(device, "budget"), "in_use"), 524);
    assert_int_equal(mebibytes_at(refusal, "set_aside"), 524);
    assert_null(json_object_get(device, "more_than_set_aside"));
    assert_null(json_object_get(device, "enough_would_be"));
    json_decref(report);
}

static void more_than_was_set_aside_is_said_with_what_to_write(void **state)
{
    (void)state;
    json_t *report = report_of(run_wider("--budget 1GiB --set-aside 400MiB --json", "external hidden"),
                               "624 MiB free, 1000 MiB: 2\n");
    const json_t *device = first_of(report, "devices");
    assert_int_equal(mebibytes_at(device, "more_than_set_aside"), 100);
    const char *advice = json_string_value(json_object_get(device, "enough_would_be"));
    assert_non_null(advice);
    assert_memory_equal(advice, "--set-aside 500MiB, ", 20);
    json_decref(report);
    check(run_wider("--budget 1GiB --set-aside 400MiB --report", "external hidden"), 0, "624 MiB free",
          "more_than_set_aside: 104857600 (100 MiB)\n    enough_would_be: --set-aside 500MiB");
    report = report_of(run_wider("--budget 1GiB --set-aside 500MiB --json", "external hidden"), "");
    assert_null(json_object_get(first_of(report, "devices"), "more_than_set_aside"));
    json_decref(report);
}

static void without_it_nothing_is_set_aside(void **state)
{
    (void)state;
    json_t *report = report_of(run_wider("--budget 1GiB --json", "external hidden"), "1024 MiB free, 1000 MiB: 0\n");
    assert_null(json_object_get(first_of(report, "devices"), "set_aside"));
    json_decref(report);
}

/* Sizes in two words: what is left is known with the device. */
static void a_budget_that_it_would_leave_nothing_of_gives_no_memory(void **state)
{
    (void)state;
    static const char *const options[] = {"--budget 64MiB --set-aside 50%", "--budget 50% --set-aside 8GiB"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check(run_under(options[i], "behaviour refused"), 2, "0 blocks, then 2",
              "device 0: what is to be set aside does not fit, and memory is refused until it does: --set-aside: 8 GiB "
              "(8589934592 bytes) would leave the program nothing of the limit of ");
}

static void a_size_that_cannot_work_runs_no_program(void **state)
{
    (void)state;
    static const struct {
        const char *options, *says;
    } cases[] = {
        {"--set-aside 1MiB", "--set-aside: there is no budget of which 1MiB could be set aside: give --budget, too"},
        {"--set-aside 1MiB --stack pool", "--set-aside: there is no budget"},
        {"--budget 64MiB --set-aside 64MiB", "--set-aside: 64MiB would leave the program nothing of --budget 64MiB"},
        {"--budget 64MiB --set-aside 1GiB", "--set-aside: 1GiB would leave the program nothing of --budget 64MiB"},
        {"--budget 5% --set-aside 5.5%", "--set-aside: 5.5% would leave the program nothing of --budget 5%"},
        {"--budget 64MiB --set-aside much",
         "--set-aside: invalid size \"much\"; expected one such as 600MiB, or a share of the device such as 5%"},
        {"--budget 64MiB --set-aside 4611686018427387904", "--set-aside: 4611686018427387904 is above 2^62 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome *result = run_under(cases[i].options, "behaviour refused");
        assert_outcome(result, 2, "", cases[i].says);
        assert_string_equal(result->out, "");
        free(result);
    }
    check(run_under("--budget 64MiB --set-aside 67108863", "/bin/true"), 0, "", "");
}

static void each_device_has_some_set_aside(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check(run_under("--budget 132MiB --set-aside 32MiB", "corners devices"), 0, "less free here: 0, there: 64\n", "");
    json_t *report = report_of(run_under("--budget 132MiB --set-aside 32MiB --json", "corners devices"), "");
    const json_t *devices = json_object_get(report, "devices");
    assert_int_equal(json_array_size(devices), 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(mebibytes_at(json_array_get(devices, i), "set_aside"), 32);
    json_decref(report);
    unsetenv("STRATA_SIM_DEVICES");
}

/* ---- resets ---- */

static void after_a_reset_as_much_is_set_aside_as_before(void **state)
{
    (void)state;
    json_t *report =
        report_of(run_under("--budget 100MiB --set-aside 24MiB --json", "set_aside resets"), " 76 76 76 76\n");
    const json_t *devices = json_object_get(report, "devices");
    assert_int_equal(json_array_size(devices), 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(mebibytes_at(json_array_get(devices, i), "set_aside"), 24);
    json_decref(report);
    check(run_wider("--budget 132MiB --set-aside 32MiB", "unseen_resets asked"), 0, "100 of 132 MiB free, 2 2\n", "");
}

/* ---- several processes ---- */

typedef struct shared_case {
    const char *way, *in_out, *in_err;
} shared_case;

/* Of 100 MiB that the processes share, each sets 24 aside. */
static void check_shared(const shared_case *cases, size_t count)
{
    char shared[] = "/tmp/strata-exec-XXXXXX";
    assert_non_null(mkdtemp(shared));
    setenv("STRATA_SHARED_DIR", shared, 1);
    for (size_t i = 0; i < count; i++) {
        const char *options = text_of("--children --budget 100MiB --set-aside 24MiB --shared exec-%s", cases[i].way);
        outcome *result = run_under(options, text_of("set_aside %s", cases[i].way));
        assert_outcome(result, 0, cases[i].in_out, cases[i].in_err);
        if (!*cases[i].in_err)
            assert_string_equal(result->err, "");
        free(result);
    }
    unsetenv("STRATA_SHARED_DIR");
    assert_int_equal(system(text_of("rm -r %s", shared)), 0);
}

/* Also one that asks for no memory, from its context on. */
static void each_process_that_shares_a_budget_sets_aside_its_part(void **state)
{
    (void)state;
    static const shared_case cases[] = {{"idle", "52 MiB free: 0 0, 44 MiB free: 0 0\n", ""},
                                        {"context", "52 MiB free: 0 0, 44 MiB free: 0 0\n", ""}};
    check_shared(cases, sizeof cases / sizeof cases[0]);
}

static void a_process_without_room_for_its_part_is_refused_memory_until_there_is(void **state)
{
    (void)state;
    static const shared_case cases[] = {
        {"holding", "0 MiB free: 2 2, 52 MiB free: 0 0\nthen 0\n",
         "memory is refused until it does: --set-aside: budget \"exec-holding\": reservation of 24 MiB (25165824 "
         "bytes) (tag \"\") refused: limit 100 MiB (104857600 bytes), in use 88 MiB"}};
    check_shared(cases, 1);
}

/* Requests wait for room, for what is set aside too; the program's begin and its looks at its memory do not. */
static void a_process_without_room_for_its_part_waits_with_its_requests_alone(void **state)
{
    (void)state;
    char shared[] = "/tmp/strata-exec-XXXXXX";
    assert_non_null(mkdtemp(shared));
    setenv("STRATA_SHARED_DIR", shared, 1);
    check(run_under("--children --set-aside 24MiB --stack budget(limit=100MiB,shared=exec-asked,wait=live),pool",
                    "set_aside asked"),
          0, "0 MiB free, 0 MiB free, then 0 0, 44 MiB free\n", "memory is refused until it does");
    unsetenv("STRATA_SHARED_DIR");
    assert_int_equal(system(text_of("rm -r %s", shared)), 0);
}

/* The other one has 32 MiB of the budget. On a real device they are among what this one does not account for. */
static void what_others_have_of_a_shared_budget_is_no_more_than_was_set_aside(void **state)
{
    (void)state;
    char shared[] = "/tmp/strata-exec-XXXXXX";
    assert_non_null(mkdtemp(shared));
    setenv("STRATA_SHARED_DIR", shared, 1);
    json_t *report = report_of(
        run_wider("--children --budget 100MiB --set-aside 24MiB --shared exec-leaving --json", "set_aside leaving"),
        "52 MiB free: 0 0, \n");
    unsetenv("STRATA_SHARED_DIR");
    assert_int_equal(mebibytes_at(first_of(report, "devices"), "not_accounted_for"), 60);
    assert_int_equal(mebibytes_at(first_of(report, "devices"), "more_than_set_aside"), 60 - 32 - 24);
    json_decref(report);
    assert_int_equal(system(text_of("rm -r %s", shared)), 0);
}

static void what_is_set_aside_goes_back_with_the_context(void **state)
{
    (void)state;
    static const shared_case cases[] = {{"released", "76 MiB free: 0 0, 68 MiB free: 0 0\n", ""},
                                        {"resets", " 76 76 76 76\n", ""}};
    check_shared(cases, sizeof cases / sizeof cases[0]);
}

static void a_forked_child_gives_nothing_of_its_parents_back(void **state)
{
    (void)state;
    static const shared_case cases[] = {{"forked", "child: 1\n52 MiB free: 0 0, 44 MiB free: 0 0\n", ""}};
    check_shared(cases, 1);
    check(run_under("--budget 2GiB --set-aside 1984MiB", "fork_first begun"), 0, "parent: 4 blocks, then 2\n", "");
    check(run_under("--budget 96MiB --set-aside 32MiB", "fork_first"), 0,
          "child: 4 blocks, then 2\nparent: 4 blocks, then 2\n", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_set_aside_is_not_free_and_the_device_keeps_its_size),
        cmocka_unit_test(requests_into_what_is_set_aside_are_refused),
        cmocka_unit_test(the_report_says_what_was_set_aside_and_what_was_needed),
        cmocka_unit_test(more_than_was_set_aside_is_said_with_what_to_write),
        cmocka_unit_test(without_it_nothing_is_set_aside),
        cmocka_unit_test(a_budget_that_it_would_leave_nothing_of_gives_no_memory),
        cmocka_unit_test(a_size_that_cannot_work_runs_no_program),
        cmocka_unit_test(each_device_has_some_set_aside),
        cmocka_unit_test(after_a_reset_as_much_is_set_aside_as_before),
        cmocka_unit_test(each_process_that_shares_a_budget_sets_aside_its_part),
        cmocka_unit_test(a_process_without_room_for_its_part_is_refused_memory_until_there_is),
        cmocka_unit_test(a_process_without_room_for_its_part_waits_with_its_requests_alone),
        cmocka_unit_test(what_others_have_of_a_shared_budget_is_no_more_than_was_set_aside),
        cmocka_unit_test(what_is_set_aside_goes_back_with_the_context),
        cmocka_unit_test(a_forked_child_gives_nothing_of_its_parents_back),
    };
    return cmocka_run_group_tests_name("exec_set_aside", tests, find_folders, forget_folders);
}
