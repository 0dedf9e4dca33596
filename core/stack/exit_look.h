/* Keeps stacks from being destroyed while the check at process exit looks at them. */
#ifndef STRATA_CORE_STACK_EXIT_LOOK_H
#define STRATA_CORE_STACK_EXIT_LOOK_H

#include <stdbool.h>

/* Brackets the destruction of a stack. Blocks while the check runs. False if the check timed out and still runs: the
 * process is exiting, so leak everything and do not call leave. Any thread. */
bool strata_exit_look_enter(void);
void strata_exit_look_leave(void);

/* Calls `look` on a thread of its own while no stack is destroyed, drops its errors, and waits up to the timeout. False
 * if it did not start or end in time. Once for each process, from an exit handler. */
bool strata_exit_look_hold(void (*look)(void), unsigned patience_ms);

#endif
