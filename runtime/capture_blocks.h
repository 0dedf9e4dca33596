/* The blocks of capture pools, by slot: the live ones, and spare ones, which keep theirs for the next block of their
 * pool. Guarded by the captures' lock. */
#ifndef STRATA_RUNTIME_CAPTURE_BLOCKS_H
#define STRATA_RUNTIME_CAPTURE_BLOCKS_H

#include "runtime/capture_pool.h"
#include "runtime/capture_uses.h"

typedef struct strata_pool_block {
    struct strata_pool_block *previous, *next; /* in the pool; a spare one's `next` is the next spare one */
    strata_capture_pool *pool;
    strata_capture_range *range; /* NULL: spare */
    strata_block block;
    cuuint64_t capture;                    /* in which it was allocated, while that is under way; else 0 */
    strata_capture_use use;                /* in that capture */
    uint32_t slot;                         /* 0: none */
    strata_entry *entry;                   /* of the slot */
    struct strata_pool_block *same_bucket; /* the next one in the map */
} strata_pool_block;

/* Before the first pool, without the lock. Idempotent; false without host memory. */
bool strata_pool_blocks_open(strata_runtime *runtime);
void strata_pool_blocks_close(strata_runtime *runtime);

/* Gives a range of the pool an identity, also in *block. NULL without host memory. */
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

/* Retires the block, frees its range, and lets go of the pool: *last if nothing holds that any more, for
 * strata_captures.end_pool. Errors: those of a free. */
strata_status strata_pool_block_free(strata_pool_block *one, const strata_block *block, bool *last);

/* The same in its capture, which holds the pool: the range may be used behind its nodes (capture_ranges.h), which an
 * error leaves there. */
strata_status strata_pool_block_free_within(strata_pool_block *one, const strata_block *block,
                                            strata_capture_place *place);

/* Undoes the making of a block in a capture, which holds the pool. */
void strata_pool_block_take_back(strata_pool_block *one, const strata_block *block, cuuint64_t capture);

/* The capture has ended: its blocks are the pool's alone. */
void strata_pool_blocks_leave_capture(strata_capture_pool *pool, cuuint64_t capture);

/* For the end of a pool without live blocks. */
void strata_pool_blocks_destroy(strata_capture_pool *pool);

#endif
