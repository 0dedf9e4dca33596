/* What a sweep accepts, and why: edges that it may drop without a report (any other such edge fails the sweep: it is a
 * blind spot of the checker, or an unnecessary wait), and failed calls that show without an error. */
#ifndef STRATA_TEST_SWEEP_EXCEPTIONS_H
#define STRATA_TEST_SWEEP_EXCEPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* NULL: no edge may. `name` is a case with its stack, as test_run_on names it. */
const char *test_sweep_exception_reason(const char *name);

/* Whether the case shows that strata_device_wait waits, by freeing memory: STRATA_SIM_CHECK_FREES counts no such wait,
 * and stays off. */
bool test_sweep_waits_by_frees(const char *name);

/* Whether a failed call may show in the case without an error: the library has another way, or tries again later. */
bool test_sweep_recovers(const char *name);

#endif
