/* Edges that a sweep may drop without a report, and why. Any other such edge fails the sweep: it is a blind spot of the
 * checker, or an unnecessary wait. */
#ifndef STRATA_TEST_SWEEP_EXCEPTIONS_H
#define STRATA_TEST_SWEEP_EXCEPTIONS_H

#include <stddef.h>

/* NULL: no edge may. `name` is a case with its stack, as test_run_on names it. */
const char *test_sweep_exception_reason(const char *name);

#endif
