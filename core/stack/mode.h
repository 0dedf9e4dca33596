/* The mode for stacks from texts: strata_set_mode, else STRATA_MODE. */
#ifndef STRATA_CORE_STACK_MODE_H
#define STRATA_CORE_STACK_MODE_H

#include <strata/stack.h>

/* The current mode. Errors: SYNTAX (STRATA_MODE names none). */
strata_status strata_mode_now(strata_mode *mode);

#endif
