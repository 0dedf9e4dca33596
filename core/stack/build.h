/* Builds a stack from resources. */
#ifndef STRATA_CORE_STACK_BUILD_H
#define STRATA_CORE_STACK_BUILD_H

#include <strata/stack.h>

/* Builds a stack and stores its text; takes nothing over on failure. */
strata_status strata_stack_build_named(strata_resource *const *resources, size_t count, int ordinal, const char *text,
                                       strata_stack **out);

#endif
