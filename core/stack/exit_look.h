/* Stacks end when their users say so, but not while somebody looks at all of them at the exit of the process. */
#ifndef STRATA_CORE_STACK_EXIT_LOOK_H
#define STRATA_CORE_STACK_EXIT_LOOK_H

#include <stdbool.h>

/* Around the end of a stack. Waits while somebody looks. False, and then there is no leave: somebody still does who was
 * given up on; the process exits, and everything stays where it is. Any thread. */
bool strata_exit_look_enter(void);
void strata_exit_look_leave(void);

/* Calls `look` on a thread of its own, whose errors are nobody's, while no stack ends, and waits at most so long. False
 * if it was not begun, or not over by then. Once in a process: from its exit handlers. */
bool strata_exit_look_hold(void (*look)(void), unsigned patience_ms);

#endif
