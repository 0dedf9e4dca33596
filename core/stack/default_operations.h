/* The operations that a layer leaves NULL. */
#ifndef STRATA_CORE_STACK_DEFAULT_OPERATIONS_H
#define STRATA_CORE_STACK_DEFAULT_OPERATIONS_H

#include <strata/resource.h>

/* Replaces each operation that is NULL: in a decorator by a forward to the layer below, in an owner by a default. */
void strata_fill_operations(strata_resource_ops *ops, bool owner);

#endif
