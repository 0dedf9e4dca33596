/* What the sweep of edges may leave unseen, and why. An edge that can be forgotten without a report, and is not in this
 * list, fails the sweep: it is a blind spot of the checker, or a wait that need not be. */
#ifndef STRATA_TEST_UNSEEN_H
#define STRATA_TEST_UNSEEN_H

#include <stddef.h>

/* NULL if nothing may. `name` is a case with its stack, as test_run_on names it. */
const char *test_unseen_reason(const char *name);

#endif
