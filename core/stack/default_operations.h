/* Operations that a layer leaves NULL. */
#ifndef STRATA_CORE_STACK_DEFAULT_OPERATIONS_H
#define STRATA_CORE_STACK_DEFAULT_OPERATIONS_H

#include "core/stack/stack.h"

/* In a decorator they forward to the layer below; an owner gets defaults. */
void strata_fill_operations(strata_resource_ops *ops, bool owner);

/* Of owners that hold no freed block back for its stream. */
strata_status strata_nothing_reusable(strata_resource *self, const strata_request *request, size_t *bytes,
                                      strata_block_id *of);

/* Of a connected stack's outermost layer, whose table is `ops`. */
void strata_fill_top_allocate(const strata_resource *top, strata_resource_ops *ops);

/* By the same layer's allocate and deallocate. */
strata_made strata_allocate_plainly(strata_resource *self, const strata_request *request, strata_block *out);
strata_status strata_deallocate_plainly(strata_resource *self, const strata_block *block, strata_entry *entry,
                                        strata_timeline *timeline);
/* By the same layer's allocate_own. On failure *out is zeroed. */
strata_made strata_allocate_by_request(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
strata_status strata_top_allocate_plainly(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
strata_status strata_top_deallocate_plainly(strata_resource *self, const strata_block *block);

/* By the same layer's allocate_plain, where all layers below have one of their own; by its own deallocate_own. */
strata_status strata_top_allocate_directly(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
strata_status strata_top_deallocate_own(strata_resource *self, const strata_block *block);

#endif
