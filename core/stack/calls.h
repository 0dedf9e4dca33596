/* What calls of a stack's users share, with a runtime and without one. */
#ifndef STRATA_CORE_STACK_CALLS_H
#define STRATA_CORE_STACK_CALLS_H

#include "core/base/driver_state.h"
#include "core/stack/stack.h"

/* A free after the driver's shutdown: no memory is left to free. Ends the block, so that no report of live blocks has
 * it. SUCCESS for any block. */
strata_status strata_free_without_driver(const strata_resource *resource, const strata_block *block);

/* strata_resource_deallocate for a stack's outermost layer and a block; neither is NULL. */
strata_status strata_free_from_top(strata_resource *resource, const strata_block *block, CUstream stream);

/* The error of a use that does not reach the stack; SUCCESS for an empty block, which needs nothing. */
strata_status strata_refuse_use(const strata_resource *resource, const strata_block *block, strata_access access,
                                bool none);

/* Whether a use can be passed on unchanged. */
static inline bool strata_use_is_fine(const strata_resource *resource, const strata_block *block, strata_access access,
                                      strata_access least)
{
    bool fine = resource && block && (unsigned)access >= (unsigned)least &&
                (unsigned)access <= STRATA_ACCESS_READ_WRITE && block->address &&
                strata_driver_state_now() == STRATA_DRIVER_OPEN;
    return __builtin_expect(fine, 1);
}

#endif
