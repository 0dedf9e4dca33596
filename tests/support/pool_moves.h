/* For tests of the pool that look at something else than what moving buys, which depends on how fast the machine is. */
#ifndef STRATA_TESTS_SUPPORT_POOL_MOVES_H
#define STRATA_TESTS_SUPPORT_POOL_MOVES_H

#include "core/stack/stack.h"
#include "resources/pool/internal.h"

#include <strata/strata.h>

/* Moving buys nothing, on whatever machine and however busy it is; what it buys is test_pool_overhead.c's. */
static inline void forget_moves(strata_runtime *runtime)
{
    pool *self = (pool *)strata_stack_layer(strata_runtime_stack(runtime), "pool", 0);
    self->adaptive.by_remapping = 0;
    self->adaptive.remap_window = (pool_remap_window){0};
}

#endif
