/* Runs this program again, in a process forked for it. */
#ifndef STRATA_TEST_RERUN_H
#define STRATA_TEST_RERUN_H

#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* The path of the program. Under a tool, opening /proc/self/exe gives the tool; reading the link gives the program. */
static inline bool test_program_path(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Replaces the process by the program; returns only if that fails. */
static inline void test_rerun_program(char *const arguments[])
{
    char path[4096];
    if (test_program_path(path, sizeof path))
        execv(path, arguments);
}

#endif
