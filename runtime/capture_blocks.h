/* The blocks of capture pools, by slot: the live ones, and spare ones, each of which keeps its slot for the pool's next
 * block. Guarded by the captures' lock. */
#ifndef STRATA_RUNTIME_CAPTURE_BLOCKS_H
#define STRATA_RUNTIME_CAPTURE_BLOCKS_H

#include "runtime/capture_pool.h"
#include "runtime/capture_uses.h"

typedef struct strata_pool_block {
    struct strata_pool_block *previous,
        *next; /* in the pool's list of live blocks; a spare one's `next`: of spare ones */
    strata_capture_pool *pool;
    strata_capture_range *range; /* NULL: spare */
    strata_block block;
    cuuint64_t capture;                    /* in which it was allocated, while that is under way; else 0 */
    strata_capture_use use;                /* in that capture */
    uint32_t slot;                         /* 0: none */
    strata_entry *entry;                   /* of the slot */
    struct strata_pool_block *same_bucket; /* the next one in the map */
} strata_pool_block;

/* Open creates the map; it is called before each pool, without the lock. False without host memory. */
bool strata_pool_blocks_open(strata_runtime *runtime);
void strata_pool_blocks_close(strata_runtime *runtime);

/* Makes a live block of a range of the pool, also in *block. NULL without host memory. */
strata_pool_block *strata_pool_block_publish(strata_capture_pool *pool, strata_capture_range *range,
                                             const strata_request *request, strata_block *block);

static inline strata_pool_block *strata_pool_block_find(const strata_runtime *runtime, strata_block_id id)
{
    const strata_pool_block_map *map = &runtime->captures.pool_blocks;
    strata_pool_block *one = map->buckets ? map->buckets[id.slot & map->mask] : NULL;
    while (one && one->slot != id.slot)
        one = one->same_bucket;
    return one && one->range && one->block.id.generation == id.generation && one->block.id.table == id.table ? one
                                                                                                             : NULL;
}

strata_pool_block *strata_pool_block_at(const strata_runtime *runtime, CUdeviceptr address);

/* Frees the block and its range, and releases its hold on the pool. *last: nothing holds the pool any more, and the
 * caller calls strata_captures.end_pool. Errors: those of a free. */
strata_status strata_pool_block_free(strata_pool_block *one, const strata_block *block, bool *last);

/* As strata_pool_block_free, inside the block's capture, which holds the pool. The range may be used again behind the
 * nodes in its `after` (capture_ranges.h), which stay there after an error. */
strata_status strata_pool_block_free_within(strata_pool_block *one, const strata_block *block,
                                            strata_capture_place *place);

/* Undoes strata_pool_block_publish in a capture, which holds the pool. */
void strata_pool_block_take_back(strata_pool_block *one, const strata_block *block, cuuint64_t capture);

/* After the end of a capture: its blocks belong to no capture any more. */
void strata_pool_blocks_leave_capture(strata_capture_pool *pool, cuuint64_t capture);

/* Frees the spare blocks, at the end of a pool without live blocks. */
void strata_pool_blocks_destroy(strata_capture_pool *pool);

#endif
