/* Chunks for a request: new ones, and free ones unmapped elsewhere. map_lock is held; a wait drops it. */
#ifndef STRATA_RESOURCES_POOL_REMAP_H
#define STRATA_RESOURCES_POOL_REMAP_H

#include "resources/chunks/chunk_list.h"
#include "resources/pool/internal.h"

typedef struct pool_remap_terms {
    CUdeviceptr from, to; /* destination: nothing is taken from it */
    uint64_t needed;      /* least bytes of the list */
    uint64_t room;        /* most bytes of the list */
    uint16_t own;         /* timeline; what waits for it alone moves in its order; POOL_TIMELINE_NONE: nothing does */
    bool others;          /* and what other streams may still use, which the request's then waits for */
    bool returned;        /* only what can be: without former places */
    bool may_wait;        /* for pending memory; oom_lock is held */
} pool_remap_terms;

/* What is returned must be complete. */
static inline pool_remap_terms pool_terms_without_order(const pool_remap_terms *how)
{
    pool_remap_terms terms = *how;
    terms.own = POOL_TIMELINE_NONE;
    terms.others = false;
    terms.returned = true;
    return terms;
}

/* The device refused `bytes`. */
void pool_record_refusal(const pool *self, uint64_t bytes, pool_outcome *outcome);

/* Makes chunks until the list has `bytes`. */
CUresult pool_chunk_list_make(pool *self, const pool_need *need, uint64_t bytes, pool_chunk_list *chunks,
                              pool_outcome *outcome);

/* In chunks of at most `room` in a range, by the terms; contiguous ones, which can only be returned, with UINT64_MAX.
 * The pool's lock is held. */
uint64_t pool_remappable_bytes(const pool *self, const pool_remap_terms *how, CUdeviceptr from, CUdeviceptr to,
                               uint64_t room);

/* Until the list has how->needed, or none is left. *no_host_memory: there was none. */
void pool_chunk_list_collect(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks, bool *no_host_memory);

/* Returns a remappable or contiguous chunk of any size, to make others. False: there is none. */
bool pool_chunk_list_give_back(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks);

/* All or nothing, with access. *call: what failed. */
CUresult pool_chunk_list_map(pool *self, const pool_chunk_list *chunks, CUdeviceptr address, const char **call);

/* The points of the places that chunks have left, which work at their new address is behind. False without host memory.
 */
bool pool_chunk_list_inherit(pool *self, const pool_chunk_list *chunks, uint32_t slot);

/* Unmaps chunks, or contiguous ones in no extent, and returns them; those with former places go back. False if one is
 * still mapped. */
bool pool_chunk_list_drop(pool *self, const uint32_t *chunks, size_t count);

#endif
