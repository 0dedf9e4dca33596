/* Operations of a stack's outermost layer that do the work of several layers in one pass. */
#ifndef STRATA_CORE_STACK_FUSE_H
#define STRATA_CORE_STACK_FUSE_H

#include "core/stack/stack.h"

enum { STRATA_FUSED_LAYERS = 4 };

/* What one pass over a stack needs of its layers, in the outermost one: every load between a call and the thread's
 * parts counts. Written when the stack is built. */
typedef struct strata_fused {
    strata_resource *layers[STRATA_FUSED_LAYERS]; /* by kind; NULL: the stack has none */
    uint32_t numbers[STRATA_FUSED_LAYERS];        /* of the thread's parts (core/base/per_thread.h); by kind */
    const strata_table *table;
} strata_fused;

/* The first members of a layer that resources/fused knows. */
typedef struct strata_fused_layer {
    strata_resource resource;
    strata_fused fused;
} strata_fused_layer;

/* Chooses top_allocate and top_deallocate of a connected stack's outermost layer, whose table is `ops`, or leaves them.
 * Written by resources/fused, before the first stack of a text is built; NULL: nothing is fused. */
typedef void strata_fuse(strata_resource *top, strata_resource_ops *ops);
extern _Atomic(strata_fuse *) strata_fuse_operations;

#endif
