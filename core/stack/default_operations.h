/* The operations that a layer leaves NULL. */
#ifndef STRATA_CORE_STACK_DEFAULT_OPERATIONS_H
#define STRATA_CORE_STACK_DEFAULT_OPERATIONS_H

#include <strata/resource.h>

/* Fills in operations that are NULL: in a decorator with forwards to the layer below, in an owner with defaults. */
void strata_fill_operations(strata_resource_ops *ops, bool owner);

#endif
