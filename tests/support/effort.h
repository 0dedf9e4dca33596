/* How much a test does. Valgrind makes a program twenty to fifty times slower, and the thread sanitizer five to fifteen
 * times, so tests that repeat an action to meet a rare moment, or for every n of many, repeat it less often: under the
 * sanitizer, which finds a race without meeting its moment, a fifth as often. tests/CMakeLists.txt sets
 * STRATA_TEST_VALGRIND for tests under Valgrind; with STRATA_TEST_FULL they do everything. */
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
    if (getenv("STRATA_TEST_FULL"))
        return usual;
#ifdef __SANITIZE_THREAD__
    return usual / 5 > under_valgrind ? usual / 5 : under_valgrind;
#else
    return test_under_valgrind() ? under_valgrind : usual;
#endif
}

/* Seconds to wait for an event that is certain to happen. */
static inline unsigned test_timeout(unsigned usual)
{
    return test_under_valgrind() ? usual * 20 : usual;
}

#endif
