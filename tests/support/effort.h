/* How much a test does. Valgrind makes a program twenty to fifty times slower, so tests that repeat an action to meet a
 * rare moment, or for every n of many, repeat it less often. tests/CMakeLists.txt sets STRATA_TEST_VALGRIND for tests
 * under Valgrind; with STRATA_TEST_FULL they do everything. */
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

/* Seconds to wait for an event that is certain to happen. */
static inline unsigned test_timeout(unsigned usual)
{
    return test_under_valgrind() ? usual * 20 : usual;
}

#endif
