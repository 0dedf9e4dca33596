/* A stall: a host function that holds a stream back until the test releases it, so that work behind it has certainly
 * not run yet. */
#ifndef STRATA_TEST_STALL_H
#define STRATA_TEST_STALL_H

#include "support/driver.h"

typedef struct test_stall test_stall;

/* Everything submitted to `stream` from now on waits for the release, or half a minute. Host functions run one after
 * another, on the simulated driver and perhaps on others, so release every stall before waiting for work behind one of
 * them. On one thread. */
test_stall *test_stall_begin(CUstream stream);

/* Releases the stream. Any thread. */
void test_stall_release(test_stall *stall);

/* Releases the stream, waits for the device, checks that the release came in time, and frees the stall. The stream may
 * have been destroyed. */
void test_stall_end(test_stall *stall);

/* Skips the running test, with a message, where cuStreamDestroy waits for the stream's work, as under
 * compute-sanitizer: there no stream can be destroyed behind a stall. */
void test_needs_destroying_without_waiting(void);

/* Whether any stall ended by itself. In a sweep of faults they time out soon, since a fault may make the library wait
 * for the stream. */
bool test_stall_timed_out(void);

/* Ends every stall that a failed test left. For teardowns. */
void test_stall_end_all(void);

#endif
