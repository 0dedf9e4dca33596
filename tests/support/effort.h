/* How much a test does. Under Valgrind a program takes twenty to fifty times as long, so what is done often to meet a
 * rare moment, or for every n of many, is done less often there. tests/CMakeLists.txt says where: STRATA_TEST_VALGRIND
 * is set for tests that Valgrind runs; with STRATA_TEST_FULL they do all of it all the same. */
#ifndef STRATA_TEST_EFFORT_H
#define STRATA_TEST_EFFORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static inline bool test_under_valgrind(void)
{
    return getenv("STRATA_TEST_VALGRIND") != NULL;
}

static inline size_t test_effort(size_t usual, size_t under_valgrind)
{
    return test_under_valgrind() && !getenv("STRATA_TEST_FULL") ? under_valgrind : usual;
}

/* How long to wait for what surely comes, in seconds. */
static inline unsigned test_timeout(unsigned usual)
{
    return test_under_valgrind() ? usual * 20 : usual;
}

#endif
