/* Operations of a stack's outermost layer that do the work of several layers in one pass. */
#ifndef STRATA_CORE_STACK_FUSE_H
#define STRATA_CORE_STACK_FUSE_H

#include "core/stack/stack.h"

/* Chooses top_allocate and top_deallocate of a connected stack's outermost layer, whose table is `ops`, or leaves them.
 * Written by resources/fused, before the
 * first stack of a text is built; NULL: nothing is fused. */
extern void (*strata_fuse_operations)(strata_resource *top, strata_resource_ops *ops);

#endif
