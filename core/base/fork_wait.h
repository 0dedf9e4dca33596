/* Short pieces of work in which no child is forked: it would inherit what they have half done, such as a lock of the
 * loader that a thread holds which the child lacks. Nor is the thread ended in them: later forks would wait for it. */
#ifndef STRATA_CORE_BASE_FORK_WAIT_H
#define STRATA_CORE_BASE_FORK_WAIT_H

#include <stdint.h>

/* Nanoseconds that a fork and such work wait for each other at most. Tests set it, before there are threads. */
extern uint64_t strata_fork_patience __attribute__((visibility("hidden")));

typedef struct strata_fork_hold {
    uint32_t generation; /* how many forks this process comes after */
    int cancel;          /* what strata_cancel_forbid gave */
} strata_fork_hold;

/* Any thread. No wait of another kind in between, and no second pair. */
strata_fork_hold strata_fork_hold_begin(void);
void strata_fork_hold_end(strata_fork_hold hold);

#endif
