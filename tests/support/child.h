/* Tests that need a process of their own: the test program runs itself again with the name of a scenario. A child does
 * not use cmocka; it prints an error and exits with 1. */
#ifndef STRATA_TEST_CHILD_H
#define STRATA_TEST_CHILD_H

#include "support/driver.h"

typedef struct test_scenario {
    const char *name;
    void (*run)(void);
} test_scenario;

#define TEST_SCENARIO(function) \
    {                           \
#function, function     \
    }

/* Called first in main: runs the scenario and exits, if this process is a child. */
void test_child_begin(int count, char **arguments, const test_scenario *scenarios, size_t scenario_count);

/* Runs a scenario in a new process, with "NAME=value" set and "NAME" unset in its environment; `changes` ends with NULL
 * or is NULL. Fails the test unless the child exits with 0 within a minute; skips it if the child exits with 77. */
void test_child_run(const char *scenario, const char *const *changes);

/* As test_child_run, but returns the exit code, where codes other than 1 have a meaning. */
int test_child_status(const char *scenario, const char *const *changes);

/* ---- in the child ---- */

#define child_ok(call)           child_check_status((call), STRATA_SUCCESS, #call, __LINE__)
#define child_status(call, want) child_check_status((call), (want), #call, __LINE__)
#define child_check(condition)   child_check_true((condition), #condition, __LINE__)

/* Ends a child at once, without exit handlers, and with its coverage. */
_Noreturn void test_child_leave(int status);

/* Writes the coverage so far, which counts even if the process is killed afterwards. */
void test_child_count(void);

void child_check_status(strata_status got, strata_status want, const char *call, int line);
void child_check_true(bool condition, const char *text, int line);

/* The child fails unless the thread's last error contains these words. */
void child_check_words(const char *words);

#endif
