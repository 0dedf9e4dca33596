/* Placement of a request across several holes. map_lock is held throughout. */
#ifndef STRATA_RESOURCES_POOL_WINDOW_H
#define STRATA_RESOURCES_POOL_WINDOW_H

#include "resources/pool/remap.h"

/* Terms of the search. */
typedef struct pool_terms {
    uint64_t most;     /* bytes that may be reserved, if others cannot be remapped */
    uint64_t granules; /* the window must touch fewer granules that are wholly free or unmapped */
    bool alone;        /* no part of it waits for other streams */
    bool may_wait;     /* remapped memory may be waited for; oom_lock is held */
} pool_terms;

typedef struct pool_window {
    CUdeviceptr from, to;
    uint64_t needed;   /* bytes of its holes, in granules */
    uint64_t granules; /* granules that it touches */
    uint32_t holes;    /* first hole, linked through `chain`; owned by the caller */
} pool_window;

/* Finds the window that touches the fewest granules among those that can be filled, and takes its holes. False: none,
 * or no host memory. */
bool pool_window_take(pool *self, const pool_need *need, const pool_terms *terms, pool_window *window);

/* Releases its holes. */
void pool_window_leave(pool *self, const pool_window *window);

/* Fills its holes with chunks that are free elsewhere, with new ones, and with new ones instead of too large ones, and
 * cuts the request out. Outcome as in pool_grow_or_remap; after a failure the holes are unchanged. */
pool_result pool_window_fill(pool *self, const pool_need *need, const pool_terms *terms, const pool_window *window,
                             pool_outcome *outcome, uint32_t *slot);

#endif
