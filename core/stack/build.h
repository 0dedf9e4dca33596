/* Builds a stack from resources. */
#ifndef STRATA_CORE_STACK_BUILD_H
#define STRATA_CORE_STACK_BUILD_H

#include <strata/stack.h>

/* `text`: the stack's text, or NULL for the layers' names. On failure the caller keeps the resources. */
strata_status strata_stack_build_named(strata_resource *const *resources, size_t count, int ordinal, const char *text,
                                       strata_stack **out);

#endif
