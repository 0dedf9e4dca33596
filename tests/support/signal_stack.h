/* Prints the call stack of a test that a signal ends. The libraries print a line on standard error at most. */
#ifndef STRATA_TEST_SIGNAL_STACK_H
#define STRATA_TEST_SIGNAL_STACK_H

/* From now on this signal prints the call stack of its thread, and then ends the process as usual. */
void test_print_stack_on_signal(int signal);

#endif
