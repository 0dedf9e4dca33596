/* Runs this program again. */
#include "support/child.h"

#include "support/effort.h"
#include "support/rerun.h"
#include "support/signal_stack.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 60, SKIPPED = 77 };

void test_child_begin(int count, char **arguments, const test_scenario *scenarios, size_t scenario_count)
{
    if (count != 3 || strcmp(arguments[1], "--child") != 0)
        return;
    test_print_stack_on_signal(SIGALRM);
    alarm(test_timeout(PATIENCE_S));
    for (size_t i = 0; i < scenario_count; i++) {
        if (strcmp(scenarios[i].name, arguments[2]) != 0)
            continue;
        scenarios[i].run();
        exit(0);
    }
    fprintf(stderr, "there is no scenario %s\n", arguments[2]);
    exit(1);
}

static void change_environment(const char *const *changes)
{
    for (; changes && *changes; changes++) {
        char name[64];
        const char *equals = strchr(*changes, '=');
        if (!equals) {
            unsetenv(*changes);
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)(equals - *changes), *changes);
        setenv(name, equals + 1, 1);
    }
}

int test_child_status(const char *scenario, const char *const *changes)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        change_environment(changes);
        test_rerun_program((char *const[]){"test", "--child", (char *)(uintptr_t)scenario, NULL});
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        skip();
    if (WIFSIGNALED(status))
        print_error("%s ended by signal %d\n", scenario, WTERMSIG(status));
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 1);
    return WEXITSTATUS(status);
}

void test_child_run(const char *scenario, const char *const *changes)
{
    assert_int_equal(test_child_status(scenario, changes), 0);
}

#ifdef STRATA_COVERAGE
void __gcov_dump(void);
void __gcov_reset(void);
#endif

void test_child_count(void)
{
#ifdef STRATA_COVERAGE
    __gcov_dump();
    __gcov_reset();
#endif
}

/* For coverage the linker replaces _exit by this function, so that a child's coverage counts even if the library ends
 * the process. */
#ifdef STRATA_COVERAGE
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

_Noreturn void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}
#endif

_Noreturn void test_child_leave(int status)
{
    _exit(status);
}

/* Ends the child without exit handlers, since it may fail inside of one. */
static _Noreturn void fail_child(void)
{
    fflush(NULL);
    _exit(1);
}

void child_check_status(strata_status got, strata_status want, const char *call, int line)
{
    if (got == want)
        return;
    printf("line %d: %s\n  answered %s, expected %s\n  last error: %s\n", line, call, strata_status_name(got),
           strata_status_name(want), strata_last_error()->message);
    fail_child();
}

void child_check_true(bool condition, const char *text, int line)
{
    if (condition)
        return;
    printf("line %d: %s does not hold; last error: %s\n", line, text, strata_last_error()->message);
    fail_child();
}

void child_check_words(const char *words)
{
    if (strstr(strata_last_error()->message, words))
        return;
    printf("the last error is \"%s\", expected \"%s\"\n", strata_last_error()->message, words);
    fail_child();
}
