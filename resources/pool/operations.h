/* The pool's operations. */
#ifndef STRATA_RESOURCES_POOL_OPERATIONS_H
#define STRATA_RESOURCES_POOL_OPERATIONS_H

#include "resources/pool/internal.h"

enum { POOL_VALUE_COUNT = 25 };

extern const strata_value pool_values[POOL_VALUE_COUNT];
extern const strata_resource_ops pool_ops;

strata_status pool_allocate(strata_resource *resource, const strata_request *request, strata_block *out);
strata_made pool_allocate_own(strata_resource *resource, const strata_request *request, strata_block *out);
strata_status pool_deallocate(strata_resource *resource, const strata_block *block, CUstream handle);
strata_status pool_deallocate_own(strata_resource *resource, const strata_block *block, strata_entry *entry,
                                  strata_timeline *timeline);
strata_status pool_top_allocate(strata_resource *resource, size_t bytes, CUstream stream, strata_block *out);
strata_status pool_top_deallocate(strata_resource *resource, const strata_block *block);
strata_status pool_usage(strata_resource *resource, strata_usage *usage);
void pool_sum_frees(strata_resource *resource, struct strata_stream_sums *sums);
strata_status pool_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status pool_set_value(strata_resource *resource, size_t which, uint64_t value);
void pool_describe(strata_resource *resource, strata_emitter *to);

/* The pool in the chain that begins with this layer; NULL: none. */
pool *pool_at_or_below(strata_resource *resource);

#endif
