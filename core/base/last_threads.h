/* The end of a process whose threads have all ended but those of libraries. The C library exits when the last thread
 * ends; a thread that a library keeps, and that takes no signals, would prevent it for ever.
 *
 * A thread of this kind is named for its own number, "strata-4711". So any copy of Strata and the simulated driver
 * recognise each other's, and none takes a thread that inherited the name for one. */
#ifndef STRATA_CORE_BASE_LAST_THREADS_H
#define STRATA_CORE_BASE_LAST_THREADS_H

#include <signal.h>

enum { STRATA_LAST_THREADS_LOOK_MS = 200 };

/* Names the calling thread as one that keeps no process alive. */
void strata_last_threads_mark(void);

/* Exits, on a new thread with this signal mask, if the main thread has ended and only marked threads are left. For a
 * marked thread that is idle, every LOOK_MS; while the main thread lives, the call reads one file. */
void strata_last_threads_look(const sigset_t *mask);

#endif
