/* The pool's operations. */
#ifndef STRATA_RESOURCES_POOL_OPERATIONS_H
#define STRATA_RESOURCES_POOL_OPERATIONS_H

#include "resources/pool/internal.h"

typedef enum pool_value {
    POOL_VALUE_RESERVED,
    POOL_VALUE_RESERVED_PEAK,
    POOL_VALUE_WATERMARK,
    POOL_VALUE_LIMIT,
    POOL_VALUE_THRESHOLD,
    POOL_VALUE_DECAY,
    POOL_VALUE_FREE,
    POOL_VALUE_LARGEST_FREE,
    POOL_VALUE_HELD,
    POOL_VALUE_CONTIGUOUS,
    POOL_VALUE_RELEASED,
    POOL_VALUE_DECAYED,
    POOL_VALUE_HITS,
    POOL_VALUE_MISSES,
    POOL_VALUE_STEALS,
    POOL_VALUE_MADE,
    POOL_VALUE_MOVED,
    POOL_VALUE_POLLS,
    POOL_VALUE_FLUSHES,
    POOL_VALUE_ALLOWED,
    POOL_VALUE_BOUGHT,
    POOL_VALUE_NEAREST,
    POOL_VALUE_OLD_MADE,
    POOL_VALUE_OLD_MOVED,
    POOL_VALUE_OLD_POLLS,
    POOL_VALUE_COUNT,
} pool_value;

extern const strata_value pool_values[POOL_VALUE_COUNT];
extern const strata_resource_ops pool_ops;

strata_status pool_allocate(strata_resource *resource, const strata_request *request, strata_block *out);
strata_made pool_allocate_own(strata_resource *resource, const strata_request *request, strata_block *out);
strata_status pool_deallocate(strata_resource *resource, const strata_block *block, CUstream handle);
strata_status pool_deallocate_own(strata_resource *resource, const strata_block *block, strata_entry *entry,
                                  strata_timeline *timeline);
strata_made pool_allocate_plain(strata_resource *resource, size_t bytes, CUstream stream, strata_block *out);
strata_status pool_top_allocate(strata_resource *resource, size_t bytes, CUstream stream, strata_block *out);
strata_status pool_top_deallocate(strata_resource *resource, const strata_block *block);
strata_status pool_usage(strata_resource *resource, strata_usage *usage);
void pool_sum_frees(strata_resource *resource, struct strata_stream_sums *sums);
strata_status pool_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status pool_set_value(strata_resource *resource, size_t which, uint64_t value);
void pool_describe(strata_resource *resource, strata_emitter *to);

/* As pool_heap_look. Holds the lock for one look only: other threads go on in between, and `seen` may go to a file. */
size_t pool_look_at_extents(pool *self, CUdeviceptr *from, pool_seen_extent seen[POOL_SEEN_MOST]);

/* The pool in the chain that begins with this layer; NULL: none. */
pool *pool_at_or_below(strata_resource *resource);

#endif
