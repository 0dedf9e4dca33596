/* Operations that a layer leaves NULL. */
#ifndef STRATA_CORE_STACK_DEFAULT_OPERATIONS_H
#define STRATA_CORE_STACK_DEFAULT_OPERATIONS_H

#include "core/stack/stack.h"

/* Fills in the operations that are NULL: a decorator's forward to the layer below, an owner's are defaults. */
void strata_fill_operations(strata_resource_ops *ops, bool owner);

/* The operation reusable of owners that hold no freed block back for its stream. */
strata_status strata_nothing_reusable(strata_resource *self, const strata_request *request, size_t *bytes,
                                      strata_block_id *of);

/* Chooses top_allocate of a connected stack's outermost layer, whose table is `ops`. */
void strata_fill_top_allocate(const strata_resource *top, strata_resource_ops *ops);

/* allocate_own and deallocate_own, by the layer's allocate and deallocate. */
strata_made strata_allocate_plainly(strata_resource *self, const strata_request *request, strata_block *out);
strata_status strata_deallocate_plainly(strata_resource *self, const strata_block *block, strata_entry *entry,
                                        strata_timeline *timeline);
/* allocate_plain, by the layer's allocate_own. On failure *out is zeroed. */
strata_made strata_allocate_by_request(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
/* top_allocate and top_deallocate, by the layer's allocate and deallocate. */
strata_status strata_top_allocate_plainly(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
strata_status strata_top_deallocate_plainly(strata_resource *self, const strata_block *block);

/* top_allocate, by the layer's allocate_plain, where no layer below makes a request of it; top_deallocate, by the
 * layer's deallocate_own. */
strata_status strata_top_allocate_directly(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
strata_status strata_top_deallocate_own(strata_resource *self, const strata_block *block);

#endif
