/* What calls of a stack's users share, with a runtime and without one. */
#ifndef STRATA_CORE_STACK_CALLS_H
#define STRATA_CORE_STACK_CALLS_H

#include "core/base/driver_state.h"
#include "core/stack/stack.h"

/* A free after the driver's shutdown, when no memory is left to free. Ends the block, so that no report of live blocks
 * has it. SUCCESS for any block. */
strata_status strata_free_without_driver(const strata_resource *resource, const strata_block *block);

/* Frees a block through the outermost layer: on `stream`, or as strata_free_on_own_stream. Neither pointer is NULL; the
 * block may be empty. */
strata_status strata_free_from_top(strata_resource *top, const strata_block *block, CUstream stream);
strata_status strata_free_from_top_on_own_stream(strata_resource *top, const strata_block *block);

/* The arguments are checked. Always inline: no frame of it in the call stacks of a build without optimization. */
static inline __attribute__((always_inline)) strata_status
strata_allocate_from_top(strata_resource *top, const strata_request *request, strata_block *out)
{
    const strata_status status = top->ops->allocate(top, request, out);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        *out = (strata_block){0};
    return status;
}

/* Whether a use with at least the access `least` needs no further check. */
static inline bool strata_use_is_valid(const strata_block *block, strata_access access, strata_access least)
{
    bool valid = block && (unsigned)access >= (unsigned)least && (unsigned)access <= STRATA_ACCESS_READ_WRITE &&
                 block->address && strata_driver_state_now() == STRATA_DRIVER_OPEN;
    return __builtin_expect(valid, 1);
}

#endif
