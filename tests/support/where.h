/* Where a test stands when a signal ends it: libraries stop the process with a line on standard error at most. */
#ifndef STRATA_TEST_WHERE_H
#define STRATA_TEST_WHERE_H

/* From now on this signal prints the call stack of the thread that gets it, and then ends the process as it would. */
void test_say_where(int signal);

#endif
