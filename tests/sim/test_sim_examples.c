/* Programs that are linked with -lcuda, run on the simulated driver in the way that docs/testing-your-code.md tells:
 * with a folder in front that has the simulated driver under the name libcuda.so.1. They are the examples of that page,
 * and what they print is what the page says of them. The programs stand beside this one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_LIMIT = 1 << 16, REPORTED = 9 };

#define CHECKED "STRATA_SIM_CHECK=1 STRATA_SIM_CHECK_EXIT=9 "

static char programs[PATH_MAX]; /* the folder that they are in */
static char driver[] = "/tmp/strata-examples-XXXXXX";
static char link_name[sizeof driver + 16];

typedef struct outcome {
    int status;
    char text[OUTPUT_LIMIT]; /* stdout and stderr */
} outcome;

static int make_driver_folder(void **state)
{
    (void)state;
    const char *library = getenv("STRATA_SIM_LIBRARY");
    ssize_t length = readlink("/proc/self/exe", programs, sizeof programs - 1);
    if (length < 0 || !library || !mkdtemp(driver))
        return -1;
    programs[length] = '\0';
    *strrchr(programs, '/') = '\0';
    snprintf(link_name, sizeof link_name, "%s/libcuda.so.1", driver);
    return symlink(library, link_name);
}

static int remove_driver_folder(void **state)
{
    (void)state;
    return unlink(link_name) == 0 && rmdir(driver) == 0 ? 0 : -1;
}

/* Runs an example with these settings in its environment. */
static outcome run(const char *settings, const char *example)
{
    static char command[2 * PATH_MAX];
    outcome result;
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s '%s'/example_%s 2>&1", driver, settings, programs,
             example);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    result.text[fread(result.text, 1, OUTPUT_LIMIT - 1, output)] = '\0';
    int status = pclose(output);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
    return result;
}

static const char *policy(void)
{
    const char *name = getenv("STRATA_SIM_POLICY");
    return name ? name : "early";
}

static void assert_says(const outcome *of, const char *words)
{
    if (!strstr(of->text, words))
        fail_msg("\"%s\" is not in:\n%s", words, of->text);
}

/* The number of the stream that the program calls by this letter. */
static unsigned stream_of(const outcome *of, char letter)
{
    char words[16];
    unsigned number;
    snprintf(words, sizeof words, "%c is stream ", letter);
    const char *at = strstr(of->text, words);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(words), "%u", &number), 1);
    return number;
}

static void the_forgotten_wait_is_reported_with_both_streams_and_the_missing_edge(void **state)
{
    (void)state;
    outcome of = run(CHECKED, "three_streams");
    char words[256];
    unsigned a = stream_of(&of, 'A'), c = stream_of(&of, 'C');
    assert_int_equal(of.status, REPORTED);
    assert_says(&of, "strata-sim: a write does not come after another\n");
    snprintf(words, sizeof words, "first: fill, cuMemsetD8Async, number 3, on stream %u\n", a);
    assert_says(&of, words);
    snprintf(words, sizeof words, "second: fill, cuMemsetD8Async, number 5, on stream %u\n", c);
    assert_says(&of, words);
    snprintf(
        words, sizeof words,
        "missing: stream %u never waited for the fill on stream %u: record an event on stream %u after it, and let "
        "stream %u wait for that event before the fill.\n",
        c, a, a, c);
    assert_says(&of, words);
    assert_says(&of, "strata-sim: 1 report\n");
}

static void the_right_order_has_no_report(void **state)
{
    (void)state;
    outcome of = run(CHECKED, "three_streams --fixed");
    assert_int_equal(of.status, 0);
    assert_says(&of, "65536 of 65536 bytes are what C wrote\n");
    assert_null(strstr(of.text, "strata-sim"));
}

static bool shows_itself(const char *settings, const char *example)
{
    outcome of = run(settings, example);
    assert_true(of.status == 0 || of.status == 1);
    assert_says(&of, of.status ? "\n0 of 65536 bytes" : "\n65536 of 65536 bytes");
    return of.status == 1;
}

static void without_the_checker_the_bug_shows_itself_only_when_work_is_put_off(void **state)
{
    (void)state;
    int shown = 0, shown_fixed = 0;
    for (int seed = 0; seed < 16; seed++) {
        char settings[64];
        snprintf(settings, sizeof settings, "STRATA_SIM_CHECK=0 STRATA_SIM_SEED=%d", seed);
        shown += shows_itself(settings, "three_streams");
        shown_fixed += shows_itself(settings, "three_streams --fixed");
    }
    assert_int_equal(shown_fixed, 0);
    if (strcmp(policy(), "random") == 0)
        assert_in_range(shown, 1, 15);
    else
        assert_int_equal(shown, strcmp(policy(), "late") == 0 ? 16 : 0);
}

static void each_call_that_fails_is_reported_and_leaves_nothing(void **state)
{
    (void)state;
    outcome of = run("STRATA_SIM_CHECK=unwritten STRATA_SIM_CHECK_EXIT=9", "failing_calls");
    static const char *const entries[] = {"cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc",
                                          "cuMemcpyHtoD",     "cuLaunchKernel",      "cuMemcpyDtoH"};
    assert_int_equal(of.status, 0);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        char words[128];
        snprintf(words, sizeof words, "%s: failed 1 times, each was reported and left nothing\n", entries[i]);
        assert_says(&of, words);
    }
}

static void the_program_with_replaced_calls_has_the_stack_of_its_environment(void **state)
{
    (void)state;
    outcome of = run(CHECKED "STRATA_DRIVER=cuda STRATA_STACK='budget(limit=32MiB), pool'", "replace_calls");
    assert_says(&of, "8 blocks of 4 MiB\n");
    assert_says(&of, "32 of 32 MiB are free\n");
    assert_int_equal(of.status, 0);
    of = run(CHECKED "STRATA_DRIVER=cuda STRATA_STACK='guard, direct'", "replace_calls");
    assert_says(&of, "64 blocks of 4 MiB\n");
    assert_int_equal(of.status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_with_replaced_calls_has_the_stack_of_its_environment),
        cmocka_unit_test(the_forgotten_wait_is_reported_with_both_streams_and_the_missing_edge),
        cmocka_unit_test(the_right_order_has_no_report),
        cmocka_unit_test(without_the_checker_the_bug_shows_itself_only_when_work_is_put_off),
        cmocka_unit_test(each_call_that_fails_is_reported_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_driver_folder, remove_driver_folder);
}
