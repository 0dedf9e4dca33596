/* The mode in which stacks are made from texts: strata_set_mode, else the environment's STRATA_MODE. */
#ifndef STRATA_CORE_STACK_MODE_H
#define STRATA_CORE_STACK_MODE_H

#include <strata/stack.h>

/* The mode now. Errors: SYNTAX (STRATA_MODE names none). */
strata_status strata_mode_now(strata_mode *mode);

#endif
