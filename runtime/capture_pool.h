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
    strata_tag tag;
    CUstream stream;           /* on which segments are allocated */
    strata_timeline *timeline; /* of that stream */
    bool is_private;           /* a graph's own */

    uint64_t holders; /* handles, captures, graphs and live blocks */
    uint64_t handles; /* of these */
    bool sealed;
    strata_capture_ranges ranges;
    struct strata_pool_block *blocks; /* live ones, by slot */
    size_t live_blocks;
    _Atomic uint64_t changes; /* of its live blocks, so far; read by any thread */
    struct strata_ref **buffers; /* held */
    size_t buffer_count, buffer_room;
    strata_lock launches; /* held by a launch of one of its graphs */
};

/* A pool's live block. */
typedef struct strata_pool_place {
    strata_capture_pool *pool;
    strata_capture_segment *segment;
    strata_capture_range *range;
    strata_block block;
} strata_pool_place;

/* Makes a pool with one holder, which is no handle. */
strata_status strata_capture_pool_make(strata_runtime *runtime, const char *name, strata_capture_pool **out);

/* The lock is not held: the last holder's end frees memory. */
void strata_capture_pool_hold(strata_capture_pool *pool);
strata_status strata_capture_pool_unhold(strata_capture_pool *pool);

/* Frees the memory of a pool without holders, and the pool; after an error it stays, for another try. */
strata_status strata_capture_pool_destroy(strata_capture_pool *pool);

/* Destroys what errors left. Errors: as above. */
strata_status strata_capture_pools_reap(strata_runtime *runtime);

/* STALE after a rebuild. */
strata_status strata_capture_pool_check(const strata_capture_pool *pool);

/* A block for work at a place of a capture, on memory of a new segment if need be. *segment: the block that it lies in.
 * The lock is not held. */
strata_status strata_capture_pool_allocate(strata_capture_pool *pool, const strata_request *request,
                                           strata_capture_place *place, strata_block *out, strata_block *segment);

/* The lock is held, also while what is found is used. */
bool strata_pool_block_find(strata_runtime *runtime, strata_block_id id, strata_pool_place *out);
bool strata_pool_block_at(strata_runtime *runtime, CUdeviceptr address, strata_pool_place *out);
bool strata_pool_has_segment(const strata_runtime *runtime, strata_block_id id);

/* Retires the block and frees its range: with nodes, in a capture. The lock is held; on success the caller then unholds
 * the pool, without it. Errors: those of a free. */
strata_status strata_pool_block_free(strata_pool_place *place, const strata_block *block, cuuint64_t capture,
                                     CUstream stream, bool plain, strata_nodes *after);

/* Calls use() for each live block in one of the pool's segments, until one fails. The lock is held. */
strata_status strata_pool_blocks_visit(strata_capture_pool *pool, const strata_block *segment,
                                       strata_status (*use)(const strata_block *block, void *data), void *data);

#endif
