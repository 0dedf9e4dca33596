/* A stall: a host function that holds a stream back until the test lets it go, so that the test decides what has
 * certainly not run yet. */
#ifndef STRATA_TEST_STALL_H
#define STRATA_TEST_STALL_H

#include "support/driver.h"

typedef struct test_stall test_stall;

/* Everything that is submitted to `stream` from now on waits for the release, or half a minute. Host functions run one
 * after another, on the simulated driver and perhaps on others, so release every stall before waiting for work behind
 * one of them. From one thread. */
test_stall *test_stall_begin(CUstream stream);

/* Lets the stream go. From any thread. */
void test_stall_release(test_stall *stall);

/* Lets the stream go, waits for the device, checks that the release came in time, and frees the stall. The stream may
 * have been destroyed. */
void test_stall_end(test_stall *stall);

/* Skips the running test, with a message, where cuStreamDestroy comes back only when the stream's work is done, as it
 * does under compute-sanitizer: there no stream can be destroyed behind a stall. */
void test_needs_destroying_without_waiting(void);

/* Whether any ended by itself: in a sweep they do so soon, since a fault may let the library wait for the stream. */
bool test_stall_timed_out(void);

/* Ends every stall that a failed test left behind. For teardowns. */
void test_stall_end_all(void);

#endif
