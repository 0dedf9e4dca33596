/* The stack of a runtime that is given none: the environment's STRATA_STACK, else the default stack. */
#ifndef STRATA_RUNTIME_ENVIRONMENT_H
#define STRATA_RUNTIME_ENVIRONMENT_H

#include <strata/runtime.h>

/* The stack text of the environment: NULL if STRATA_STACK is not set, or blank. */
const char *strata_runtime_environment_stack(void);

/* Builds that stack, else the default one. An error in the environment's text names the variable. */
strata_status strata_default_stack_create(int device, strata_stack **out);

#endif
