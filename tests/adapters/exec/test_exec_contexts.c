/* Programs with several contexts of a device, and with resets, under `strata exec`. */
#include "support/driver.h"
#include "support/exec.h"

#include <dirent.h>

/* ---- budgets ---- */

static void one_budget_is_for_all_contexts_of_a_device(void **state)
{
    (void)state;
    check(run_under("--budget 100MiB", "contexts kept-memory"), 0, " 0 2 0 2 0 2 0 2 0 0\n", "");
    check(run_under("--budget 100MiB", "contexts kept-handle"), 0, " 0 2 0 2 0 2 0\n", "");
    check(run_under("--budget 100MiB", "contexts pooled-memory"), 0, " 0 0 0 0 0\n", "");
}

/* ---- memory that the stack keeps ---- */

/* What the driver refuses while the stack has free memory is asked for again, and what another context has is no
 * unknown memory, with and without a budget. */
static void free_memory_of_the_stack_is_for_all_contexts_and_graphs(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--budget 256MiB", "--stack async", "--stack direct"};
    setenv("STRATA_SIM_MEMORY", "256MiB", 1);
    check_same("", "contexts freed", "contexts freed");
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        outcome *result = run_under(text_of("%s --json", options[i]), "contexts freed");
        assert_outcome(result, 0, " free 0 free 0 free 0 free 0 free 0 free 0 free 0 free 0 free 0 free 0 0\n", "");
        json_t *report = read_report(result);
        const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
        assert_true(json_integer_value(json_object_get(device, "not_accounted_for")) <= 1 << 20);
        json_decref(report);
        free(result);
    }
    unsetenv("STRATA_SIM_MEMORY");
}

/* ---- resets ---- */

static void a_reset_leaves_no_memory_of_a_pool_behind(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--guard", "--budget 192MiB", "--stack async", "--stack pool,async"};
    setenv("STRATA_SIM_MEMORY", "256MiB", 1);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        outcome *result = run_under(text_of("%s --json", options[i]), "contexts resets");
        assert_outcome(result, 0, " 0 0 0 0 0, and all was free\n", "");
        json_t *report = read_report(result);
        const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
        assert_int_equal(json_integer_value(json_object_get(device, "live")), 1 << 20);
        const json_int_t step = strstr(options[i], "async") ? 32 << 20 : 4 << 20; /* of the driver's pools, of ours */
        assert_true(json_integer_value(json_object_get(device, "reserved")) <= step);
        assert_true(json_integer_value(json_object_get(device, "not_accounted_for")) <= step);
        json_decref(report);
        free(result);
    }
    unsetenv("STRATA_SIM_MEMORY");
}

/* Returns how many files there were. */
static int empty_folder(const char *path)
{
    int files = 0;
    DIR *open = opendir(path);
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));)
        files += unlink(text_of("%s/%s", path, entry->d_name)) == 0;
    closedir(open);
    return files;
}

/* Of the device; the thread sanitizer leaves a process 1.5 TiB of addresses. */
#if defined(__SANITIZE_THREAD__)
#define MEMORY "16GiB"
#else
#define MEMORY "141GiB"
#endif

/* A pool has addresses for many times the device's memory. */
static void resets_leave_no_addresses_behind(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--guard", "--fail-closed"};
    setenv("STRATA_SIM_MEMORY", MEMORY, 1);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check(run_under(text_of("--budget 100MiB %s", options[i]), "contexts often"), 0, "0 failed, 0 2\n", "");
    unsetenv("STRATA_SIM_MEMORY");
}

static void a_new_stream_is_not_taken_for_one_that_a_reset_has_ended(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--guard", "--stack guard,async", "--stack async", "--mode sanitizer"};
    setenv("STRATA_SIM_DEVICES", "2", 1);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check(run_under(options[i], "contexts streams"), 0, "0 failed\n", "");
    unsetenv("STRATA_SIM_DEVICES");
}

static void a_reset_takes_what_was_live_out_of_the_budget(void **state)
{
    (void)state;
    static const char *const options[] = {
        "", "--guard", "--stack direct", "--stack binning,direct", "--stack async", "--stack pool,async"};
    char shared[] = "/tmp/strata-exec-XXXXXX";
    assert_non_null(mkdtemp(shared));
    setenv("STRATA_SHARED_DIR", shared, 1);
    for (size_t i = 0; i < 2 * sizeof options / sizeof options[0]; i++) {
        const char *shares = i % 2 ? "--shared exec-test" : "";
        check(run_under(text_of("--budget 100MiB %s %s --report", shares, options[i / 2]), "contexts freed-late"), 0,
              " 0 0 0 0 0 0 0 2 0 0\n", i < 2 ? "frees_refused: 1" : "");
    }
    unsetenv("STRATA_SHARED_DIR");
    empty_folder(shared);
    assert_int_equal(rmdir(shared), 0);
}

/* Each stack has a file of its own. */
static void stacks_with_a_log_keep_the_budget(void **state)
{
    (void)state;
    static const char *const names[] = {"log.slog", "log.%d.slog", "log", ".log"};
    char path[] = "/tmp/strata.exec-XXXXXX";
    assert_non_null(mkdtemp(path));
    setenv("STRATA_SIM_DEVICES", "2", 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        check(run_under(text_of("--fail-closed --budget 100MiB --log %s/%s", path, names[i]), "contexts around-resets"),
              0, " 0 0 2 0 0 2\n", "");
        assert_int_equal(empty_folder(path), 4);
    }
    unsetenv("STRATA_SIM_DEVICES");
    rmdir(path);
}

/* As at exit, where a context that ended before has taken all along. The simulated driver's checker would find the
 * planted faults itself. */
static void a_guard_checks_before_a_context_ends(void **state)
{
    (void)state;
    char *checked = getenv("STRATA_SIM_CHECK");
    checked = checked ? strdup(checked) : NULL;
    unsetenv("STRATA_SIM_CHECK");
    static const struct {
        const char *fault, *finding;
    } faults[] = {{"over", "guard: overrun: "}, {"freed", "write after free"}, {"late", "write after free"}};
    static const char *const ends[] = {"exit", "release", "reset", "reset-twice"};
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++)
        for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++) {
            const char *words = text_of("tidy %s %s", faults[f].fault, ends[e]);
            check(run_under("--guard", words), 0, "", faults[f].finding);
            check(run_under("--stack guard(on_finding=exit),pool", words), 86, "", faults[f].finding);
        }
    if (checked)
        setenv("STRATA_SIM_CHECK", checked, 1);
    free(checked);
}

/* The program need not end its work to end the context. */
static void work_that_does_not_end_keeps_no_context_from_its_end(void **state)
{
    (void)state;
    static const char *const ends[] = {"release", "reset"};
    for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++) {
        outcome *result = run_under("--guard", text_of("tidy long %s", ends[e]));
        assert_outcome(result, 0, "",
                       "made no last check before its context ended: the device had work that did not end");
        assert_null(strstr(result->err, "write after free"));
        free(result);
    }
}

static void a_guard_finds_nothing_where_a_context_ends_tidily(void **state)
{
    (void)state;
    static const char *const ends[] = {"exit", "release", "reset", "reset-twice"};
    for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++) {
        outcome *result = run_under("--guard", text_of("tidy held %s", ends[e]));
        assert_outcome(result, 0, "", "");
        assert_string_equal(result->err, "");
        free(result);
    }
}

/* ---- order ---- */

static void under_all_policies(const char *words, const char *out)
{
    static const char *const policies[] = {"late", "random", "early"};
#if defined __SANITIZE_THREAD__ /* it looks for races, and takes its time */
    enum { POLICIES = 1 };
#else
    enum { POLICIES = 3 };
#endif
    for (size_t p = 0; p < POLICIES; p++) {
        setenv("STRATA_SIM_POLICY", policies[p], 1);
        check(run_under("--report", words), 0, out, "waits_on_the_host: 0");
    }
    unsetenv("STRATA_SIM_POLICY");
}

static void default_streams_of_other_contexts_are_ordered(void **state)
{
    (void)state;
    under_all_policies("contexts default-streams", " 0 0 0 0 0 0\n 0 0 0 0 0 0\n 0 0 0 0 0 0\n");
}

static void the_last_work_of_a_context_is_ordered(void **state)
{
    (void)state;
    under_all_policies("contexts ended", " 0\n");
}

static void a_capture_ends_with_the_context_of_its_stream(void **state)
{
    (void)state;
    check(run_under("", "contexts captured"), 0,
          "before: the stack\nin a capture: the driver\nbehind its context: the stack\n"
          "the end of another context's: 401\nin a capture still: the driver\nbehind its context: the stack\n",
          "");
}

static void a_peer_s_streams_are_ordered(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    under_all_policies("contexts peer", " 0 0 0 0 0 0\n 0 0\nwent on\n");
    unsetenv("STRATA_SIM_DEVICES");
}

static void a_free_needs_the_context_of_its_default_stream(void **state)
{
    (void)state;
    check_same("", "contexts no-context", "contexts no-context");
}

/* No barrier takes in its streams. */
static void a_free_on_another_device_s_default_stream_waits(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check(run_under("--report", "contexts no-access"), 0, " 0\n", "waits_on_the_host: 1");
    unsetenv("STRATA_SIM_DEVICES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_budget_is_for_all_contexts_of_a_device),
        cmocka_unit_test(free_memory_of_the_stack_is_for_all_contexts_and_graphs),
        cmocka_unit_test(a_reset_leaves_no_memory_of_a_pool_behind),
        cmocka_unit_test(resets_leave_no_addresses_behind),
        cmocka_unit_test(a_new_stream_is_not_taken_for_one_that_a_reset_has_ended),
        cmocka_unit_test(a_reset_takes_what_was_live_out_of_the_budget),
        cmocka_unit_test(stacks_with_a_log_keep_the_budget),
        cmocka_unit_test(a_guard_checks_before_a_context_ends),
        cmocka_unit_test(work_that_does_not_end_keeps_no_context_from_its_end),
        cmocka_unit_test(a_guard_finds_nothing_where_a_context_ends_tidily),
        cmocka_unit_test(default_streams_of_other_contexts_are_ordered),
        cmocka_unit_test(the_last_work_of_a_context_is_ordered),
        cmocka_unit_test(a_capture_ends_with_the_context_of_its_stream),
        cmocka_unit_test(a_peer_s_streams_are_ordered),
        cmocka_unit_test(a_free_on_another_device_s_default_stream_waits),
        cmocka_unit_test(a_free_needs_the_context_of_its_default_stream),
    };
    return cmocka_run_group_tests_name("exec_contexts", tests, find_folders, forget_folders);
}
