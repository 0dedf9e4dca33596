/* Pools of memory for captures. */
#ifndef STRATA_RUNTIME_CAPTURE_POOL_H
#define STRATA_RUNTIME_CAPTURE_POOL_H

#include "runtime/capture_ranges.h"
#include "runtime/device_state.h"
#include "runtime/runtime.h"

struct strata_pool_block;

/* Guarded by the captures' lock but for what is constant. */
struct strata_capture_pool {
    strata_capture_pool *next;    /* in the runtime's list */
    strata_runtime *runtime;      /* these are constant */
    strata_device_record *record; /* held */
    uint64_t word;                /* of the record */
    uint64_t number;
    bool is_private; /* a graph's own */

    _Atomic strata_tag tag; /* of new segments; a private pool's gets its capture's name. Any thread */

    CUstream stream;           /* segments are allocated on it; made for the first one, then constant */
    strata_timeline *timeline; /* of that stream */

    CUmemoryPool mempool; /* the driver's, made by the first activation; guarded by the lock of capture_mempool.c */

    uint64_t holders; /* counts handles, captures, graphs and live blocks */
    uint64_t handles; /* counts the handles alone */
    bool sealed;
    bool left;      /* the pool has no holders, and its end has failed */
    bool in_graphs; /* a capture that uses it has ended: launches may be under way */
    strata_capture_ranges ranges;
    struct strata_pool_block *blocks; /* live ones */
    struct strata_pool_block *spare_blocks;
    size_t live_blocks;
    _Atomic uint64_t changes;    /* changes of its live blocks so far; read by any thread */
    struct strata_ref **buffers; /* held */
    size_t buffer_count, buffer_room;
    strata_lock launches; /* held during a launch of one of its graphs */
};

static inline strata_tag strata_capture_pool_tag(const strata_capture_pool *pool)
{
    return atomic_load_explicit(&pool->tag, memory_order_relaxed);
}

/* Makes a pool with one holder, which is no handle. */
strata_status strata_capture_pool_make(strata_runtime *runtime, const char *name, strata_capture_pool **out);

/* The caller does not hold the captures' lock: the last unhold frees memory. */
void strata_capture_pool_hold(strata_capture_pool *pool);
strata_status strata_capture_pool_unhold(strata_capture_pool *pool);

/* Frees the memory of a pool without holders, and the pool; after an error it stays, for another try. */
strata_status strata_capture_pool_destroy(strata_capture_pool *pool);

/* Destroys pools whose end has failed before. Errors: as strata_capture_pool_destroy. */
strata_status strata_capture_pools_reap(strata_runtime *runtime);

/* Raises STALE after a rebuild. */
strata_status strata_capture_pool_check(const strata_capture_pool *pool);

/* Takes a block for work at a place of a capture, also in *block. *out is NULL if no memory fits: then the pool has to
 * grow. The lock is held. Errors: STALE, SEALED, INVALID_VALUE, OUT_OF_MEMORY, OUT_OF_HOST_MEMORY. */
strata_status strata_capture_pool_take(strata_capture_pool *pool, const strata_request *request,
                                       strata_capture_place *place, strata_block *block,
                                       struct strata_pool_block **out);

/* Adds a segment that the request fits into. The lock is not held. Errors: those of a request to the stack. */
strata_status strata_capture_pool_grow(strata_capture_pool *pool, const strata_request *request);

/* Whether the block is a segment of a pool. The lock is held. */
bool strata_pool_has_segment(const strata_runtime *runtime, strata_block_id id);

#endif
