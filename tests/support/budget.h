/* Shared by the tests of `budget`. */
#ifndef STRATA_TESTS_SUPPORT_BUDGET_H
#define STRATA_TESTS_SUPPORT_BUDGET_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "support/fixture.h"

static const size_t KIB = 1024, MIB = (size_t)1 << 20, GIB = (size_t)1 << 30;

/* Gives the fixture a runtime with this stack. */
static inline strata_budget_account *use_stack(test_fixture *fixture, const char *text)
{
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    const strata_runtime_config config = {.stack_text = text, .stream_capacity = 64};
    check_ok(strata_runtime_create(&config, &fixture->runtime));
    return strata_budget_base(strata_stack_top(strata_runtime_stack(fixture->runtime)));
}

static inline strata_budget_usage usage_of(strata_budget_account *account)
{
    strata_budget_usage usage;
    check_ok(strata_budget_account_usage(account, &usage));
    return usage;
}

static inline strata_status try_allocate(test_fixture *fixture, size_t bytes, CUstream stream, strata_block *out)
{
    return strata_runtime_allocate(fixture->runtime, bytes, stream, out);
}

static inline void free_block(test_fixture *fixture, const strata_block *block)
{
    check_ok(strata_runtime_deallocate(fixture->runtime, block));
}

static char directory[] = "/tmp/strata-budget-XXXXXX";
static pid_t maker;

/* Removes the directory, in the process that made it alone, since a sweep forks. */
static inline void remove_directory(void)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    if (getpid() == maker && system(command) != 0)
        fprintf(stderr, "%s cannot be removed\n", directory);
}

/* A directory for the files of shared budgets, removed when the program ends. Called before the driver is opened. */
static inline bool make_directory(void)
{
    maker = getpid();
    return mkdtemp(directory) && setenv("STRATA_SHARED_DIR", directory, 1) == 0 && atexit(remove_directory) == 0;
}

static inline void nap(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

#endif
