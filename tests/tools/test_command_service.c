/* `strata service replay`: reports, exit statuses, and bad usage. */
#include "support/command.h"
#include "support/driver.h"

#include <jansson.h>

#define HEAD  "strata service recording 1\n"
#define START "1 7 normal none 0 "
#define COPY  START "allocate 1 u8 4096 zeroed\n" START "to_host 1:0:u8:4096\n"

static void a_recording_is_replayed_and_counted(void **state)
{
    (void)state;
    scratch_file file = scratch_write(HEAD COPY START "run f\n" START "launch_");
    outcome *of = run_on("service replay", &file);
    assert_outcome(of, 0, "2 requests, 0 failed, 1 skipped; 4 KiB (4096 bytes) copied", "");
    assert_outcome(of, 0, "the last line is incomplete", "");
    free(of);
    scratch_remove(&file);
}

static void a_failure_is_told_with_its_line_and_in_the_exit_status(void **state)
{
    (void)state;
    scratch_file file = scratch_write(HEAD START "load 1 00\n" COPY);
    outcome *of = run_on("service replay", &file);
    assert_outcome(of, 1, "3 requests, 1 failed, 0 skipped", "");
    assert_outcome(of, 1, "first failure, line 2: STRATA_ERROR_", "");
    free(of);
    of = run_on("service replay --stop-at-failure", &file);
    assert_outcome(of, 1, "1 failed", "");
    free(of);
    scratch_remove(&file);
}

static void json_has_the_same(void **state)
{
    (void)state;
    scratch_file file = scratch_write(HEAD START "load 1 00\n" COPY);
    outcome *of = run_on("service replay --json --stack pool --device 0 --speed 1000", &file);
    json_t *object = json_loads(of->out, 0, NULL);
    assert_int_equal(of->status, 1);
    assert_int_equal(json_integer_value(json_object_get(object, "requests")), 3);
    assert_int_equal(json_integer_value(json_object_get(object, "failed")), 1);
    assert_int_equal(json_integer_value(json_object_get(object, "bytes_copied")), 4096);
    assert_true(json_is_false(json_object_get(object, "truncated")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(object, "first_failure"), "line")), 2);
    json_decref(object);
    free(of);
    scratch_remove(&file);
}

/* One of them launches a graph of the two before. The program with the worker opens no driver itself. */
static void a_recording_is_replayed_in_both_forms(void **state)
{
    (void)state;
    static const char *const lines[] = {"service replay --form process", "service replay --form isolated",
                                        "service replay --form=isolated --json"};
    scratch_file file = scratch_write(HEAD COPY START "into 1 fill 1:0:u8:4096 value:07\n" START
                                                      "make_graph 1 step\n" START "play_graph 1\n" START "run f\n");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        outcome *of = run_on(lines[i], &file);
        assert_outcome(of, 0, i == 2 ? "\"requests\": 5" : "5 requests, 0 failed, 1 skipped; 4 KiB", "");
        free(of);
    }
    scratch_remove(&file);
}

static void without_a_worker_or_a_driver_the_isolated_form_says_so(void **state)
{
    (void)state;
    scratch_file file = scratch_write(HEAD COPY);
    outcome *of = run_on("service replay --form isolated --driver /nowhere/driver", &file);
    assert_outcome(of, 2, "", "/nowhere/driver");
    free(of);
    setenv("STRATA_WORKER", "/nowhere/worker", 1);
    of = run_on("service replay --form isolated", &file);
    unsetenv("STRATA_WORKER");
    assert_outcome(of, 2, "", "/nowhere/worker");
    free(of);
    scratch_remove(&file);
}

static void bad_usage_and_bad_files_have_exit_status_2(void **state)
{
    (void)state;
    static const struct {
        const char *line, *error;
    } cases[] = {
        {"service", "say what to do: replay FILE"},
        {"service replay", "replay needs a FILE"},
        {"service dance x", "unknown \"dance\"; known: replay"},
        {"service replay x y", "unexpected \"y\""},
        {"service replay x --speed fast", "--speed: invalid speed \"fast\""},
        {"service replay x --speed -1", "--speed: invalid speed \"-1\""},
        {"service replay x --device one", "--device: invalid device \"one\""},
        {"service replay x --form other", "--form: invalid form \"other\"; expected process or isolated"},
        {"service replay /nowhere/file", "/nowhere/file could not be read"},
        {"service replay x --stack nothing", "nothing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome *of = run(cases[i].line);
        assert_outcome(of, 2, "", cases[i].error);
        free(of);
    }
    scratch_file file = scratch_write(HEAD START "dance\n");
    outcome *of = run_on("service replay", &file);
    assert_outcome(of, 2, "", "line 2: kind is \"dance\"");
    free(of);
    scratch_remove(&file);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_is_replayed_and_counted),
        cmocka_unit_test(a_failure_is_told_with_its_line_and_in_the_exit_status),
        cmocka_unit_test(json_has_the_same),
        cmocka_unit_test(a_recording_is_replayed_in_both_forms),
        cmocka_unit_test(without_a_worker_or_a_driver_the_isolated_form_says_so),
        cmocka_unit_test(bad_usage_and_bad_files_have_exit_status_2),
    };
    return cmocka_run_group_tests(tests, find_program, NULL);
}
