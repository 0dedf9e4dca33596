/* scripts/run, in a folder of its own: what it sources, builds with and starts is made up and notes how it was called,
 * so that nothing is installed, built or replayed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROOM = 1 << 16 };

static char folder[64], output[ROOM], calls[ROOM];

/* cmake is a function, which bash takes before a program. */
static const char setup[] = "STRATA_ROOT=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")/..\" && pwd)\n"
                            "STRATA_JOBS=1\n"
                            "strata_setup() { echo \"setup $*\" >>\"$STRATA_ROOT/calls\"; }\n"
                            "cmake() { echo \"cmake $*\" >>\"$STRATA_ROOT/calls\"; }\n";

static const char strata[] = "#!/bin/sh\n"
                             "echo \"strata $*\" >>\"$(dirname \"$0\")/../../../calls\"\n"
                             "echo \"output of $1\"\n"
                             "[ \"$1\" != \"$FAILS\" ] || exit 3\n";

static void read_file(const char *path, char into[ROOM])
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    into[fread(into, 1, ROOM - 1, file)] = '\0';
    fclose(file);
}

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static int make_folder(void **state)
{
    (void)state;
    char command[256];
    strcpy(folder, "/tmp/strata-run-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(command, sizeof command, "mkdir -p %s/scripts %s/build/release/bin", folder, folder);
    if (system(command))
        return -1;
    read_file("scripts/run", output);
    write_file("scripts/run", output);
    write_file("scripts/setup", setup);
    write_file("build/release/bin/strata", strata);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* Its exit status; `output` and `calls` are set. `fails`: the command of `strata` that exits with 3. */
static int run(const char *arguments, const char *fails)
{
    char command[512], path[128];
    write_file("calls", "");
    snprintf(command, sizeof command, "FAILS=%s %s/scripts/run %s >%s/output", fails, folder, arguments, folder);
    const int status = system(command);
    snprintf(path, sizeof path, "%s/output", folder);
    read_file(path, output);
    snprintf(path, sizeof path, "%s/calls", folder);
    read_file(path, calls);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Those that are no part of the build, in their order, with the folder's path left out. */
static void assert_commands(const char *expected)
{
    char found[1024] = "";
    for (char *line = strtok(calls, "\n"); line; line = strtok(NULL, "\n")) {
        char *root = strstr(line, folder);
        if (strncmp(line, "strata ", 7) != 0)
            continue;
        if (root)
            memmove(root, root + strlen(folder) + 1, strlen(root + strlen(folder) + 1) + 1);
        assert_true(strlen(found) + strlen(line) + 2 < sizeof found);
        strcat(strcat(found, line), "\n");
    }
    assert_string_equal(found, expected);
}

#define REPLAY "strata replay --touch examples/traces/gpt_train.csv.gz\n"

static void without_arguments_the_demonstration_follows_the_replay(void **state)
{
    (void)state;
    assert_int_equal(run("", ""), 0);
    assert_non_null(strstr(calls, "setup build demo\n")); /* what both need */
    assert_non_null(strstr(calls, "--target strata_command strata_sim strata_sim_blas"));
    assert_commands(REPLAY "strata demo\n");
    assert_string_equal(output, "output of replay\n\noutput of demo\n");
}

static void a_failure_of_either_is_the_scripts(void **state)
{
    (void)state;
    assert_int_equal(run("", "replay"), 3);
    assert_commands(REPLAY "strata demo\n"); /* shown all the same */
    assert_int_equal(run("", "demo"), 3);
    assert_commands(REPLAY "strata demo\n");
}

static void arguments_are_those_of_the_replay_alone(void **state)
{
    (void)state;
    assert_int_equal(run("--driver sim --stack direct", ""), 0);
    assert_commands("strata replay --touch --driver sim --stack direct examples/traces/gpt_train.csv.gz\n");
    assert_int_equal(run("--share 30 some/serving.csv.gz", "replay"), 3);
    assert_commands("strata replay --touch --share 30 some/serving.csv.gz\n");
}

static void help_tells_of_the_demonstration_and_builds_nothing(void **state)
{
    (void)state;
    assert_int_equal(run("--help", ""), 0);
    assert_string_equal(calls, "");
    assert_non_null(strstr(output, "Without arguments `strata demo`"));
    assert_int_equal(run("--stack pool -h", ""), 0);
    assert_string_equal(calls, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_arguments_the_demonstration_follows_the_replay),
        cmocka_unit_test(a_failure_of_either_is_the_scripts),
        cmocka_unit_test(arguments_are_those_of_the_replay_alone),
        cmocka_unit_test(help_tells_of_the_demonstration_and_builds_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
