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
    bool others;          /* also moves what other streams may still use: the request's stream then waits */
    bool returned;        /* only chunks that can be returned: without former places */
    bool leaves_small;    /* chunks of small blocks stay */
    bool may_wait;        /* for pending memory; oom_lock is held */
} pool_remap_terms;

/* The terms for chunks that go back to the device: no work may be left on them, not even in order. */
static inline pool_remap_terms pool_terms_without_order(const pool_remap_terms *how)
{
    pool_remap_terms terms = *how;
    terms.own = POOL_TIMELINE_NONE;
    terms.others = false;
    terms.returned = true;
    return terms;
}

/* Records that the device refused `bytes`, and what it can still give. */
void pool_record_refusal(const pool *self, uint64_t bytes, pool_outcome *outcome);

/* Makes chunks until the list has `bytes`. */
CUresult pool_chunk_list_make(pool *self, const pool_need *need, uint64_t bytes, pool_chunk_list *chunks,
                              pool_outcome *outcome);

/* Bytes of the chunks in a range that the terms let be taken, of at most `room` each; contiguous ones, which can only
 * be returned, with UINT64_MAX. The pool's lock is held. */
uint64_t pool_remappable_bytes(const pool *self, const pool_remap_terms *how, CUdeviceptr from, CUdeviceptr to,
                               uint64_t room);

/* Takes free chunks out of their places until the list has how->needed bytes, or none is left. *no_host_memory: host
 * memory ran out. */
void pool_chunk_list_collect(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks, bool *no_host_memory);

/* Returns one free chunk of any size to the device, so that others can be made. False: there is none. */
bool pool_chunk_list_give_back(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks);

/* Maps the list's chunks from `address` on, with access: all or none. *call: the driver call that failed. */
CUresult pool_chunk_list_map(pool *self, const pool_chunk_list *chunks, CUdeviceptr address, const char **call);

/* Adds the points of the former places of the chunks to the extent where they are mapped now: its work must follow
 * them. False without host memory. */
bool pool_chunk_list_inherit(pool *self, const pool_chunk_list *chunks, uint32_t slot);

/* Unmaps chunks and returns them; contiguous ones are in no extent. One with a former place becomes free memory there
 * again. False if one is still mapped. */
bool pool_chunk_list_drop(pool *self, const uint32_t *chunks, size_t count);

#endif
