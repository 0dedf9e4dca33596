/* A place for a request across several voids. Growth is held in all of it. */
#ifndef STRATA_RESOURCES_POOL_WINDOW_H
#define STRATA_RESOURCES_POOL_WINDOW_H

#include "resources/pool/remap.h"

/* What a window is looked for with. */
typedef struct pool_terms {
    uint64_t most;     /* bytes that may be reserved, if others cannot be moved */
    uint64_t granules; /* it begins to use fewer than so many that are free as a whole, or have to be mapped */
    bool alone;        /* nothing in it waits for other streams */
    bool may_wait;     /* what is to be moved may be waited for; then patience is held */
} pool_terms;

typedef struct pool_window {
    CUdeviceptr from, to;
    uint64_t needed;   /* bytes of the voids in it, in granules */
    uint64_t granules; /* that it begins to use */
    uint32_t holes;    /* the first of them, each with the next one in its `chain`: they are the caller's */
} pool_window;

/* Finds the window that begins to use the fewest granules, of those that enough can be had for, and takes its voids.
 * False: there is none, or there was no host memory. */
bool pool_window_take(pool *self, const pool_need *need, const pool_terms *terms, pool_window *window);

/* Makes its voids void again. */
void pool_window_leave(pool *self, const pool_window *window);

/* Fills its voids, with frames that lie free elsewhere, with new ones, and with new ones in place of such as are too
 * large; and cuts the request out. The attempt as in pool_grow_or_remap; after a failure the voids are as before. */
pool_result pool_window_fill(pool *self, const pool_need *need, const pool_terms *terms, const pool_window *window,
                             pool_outcome *outcome, uint32_t *slot);

#endif
