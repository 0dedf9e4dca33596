/* Placement of a request across several holes. map_lock is held throughout. */
#ifndef STRATA_RESOURCES_POOL_WINDOW_H
#define STRATA_RESOURCES_POOL_WINDOW_H

#include "resources/pool/remap.h"

typedef struct pool_terms {
    uint64_t most;     /* bytes that may be reserved */
    uint64_t granules; /* the window must touch fewer */
    bool alone;        /* without memory that waits for other streams */
    bool may_wait;     /* for remapped memory; oom_lock is held */
} pool_terms;

typedef struct pool_window {
    CUdeviceptr from, to;
    uint64_t needed;   /* bytes of its holes, in whole granules */
    uint64_t granules; /* wholly free or unmapped ones that it touches */
    uint32_t holes;    /* linked through `chain`; owned by the caller */
} pool_window;

/* Takes the holes of the window that touches the fewest granules among those that can be filled. False: none, or no
 * host memory. */
bool pool_window_take(pool *self, const pool_need *need, const pool_terms *terms, pool_window *window);

void pool_window_leave(pool *self, const pool_window *window);

/* Fills the holes with chunks from elsewhere, or new ones, and cuts the block out. Outcome as in pool_grow_or_remap;
 * after a failure the holes are as before. */
pool_result pool_window_fill(pool *self, const pool_need *need, const pool_terms *terms, const pool_window *window,
                             pool_outcome *outcome, uint32_t *slot);

#endif
