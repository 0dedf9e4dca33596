/* Operations that a layer leaves NULL. */
#ifndef STRATA_CORE_STACK_DEFAULT_OPERATIONS_H
#define STRATA_CORE_STACK_DEFAULT_OPERATIONS_H

#include <strata/resource.h>

/* In a decorator they forward to the layer below; an owner gets defaults. */
void strata_fill_operations(strata_resource_ops *ops, bool owner);

#endif
