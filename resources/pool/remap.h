/* Chunks for a request: new ones, and free ones that are unmapped elsewhere. map_lock is held throughout. */
#ifndef STRATA_RESOURCES_POOL_REMAP_H
#define STRATA_RESOURCES_POOL_REMAP_H

#include "resources/pool/internal.h"

/* Unmapped chunks, to be mapped at consecutive addresses. Its owner frees `numbers`. */
typedef struct pool_chunk_list {
    uint32_t *numbers;
    size_t count, capacity;
    uint64_t bytes;
    uint64_t remapped;  /* bytes unmapped elsewhere */
    uint64_t making_ns; /* nanoseconds spent making chunks */
} pool_chunk_list;

typedef struct pool_remap_terms {
    CUdeviceptr from, to; /* the request's destination: nothing is taken from it */
    uint64_t needed;      /* least bytes of the list */
    uint64_t room;        /* most bytes of the list */
    bool may_wait;        /* for pending memory; oom_lock is held */
} pool_remap_terms;

/* Makes chunks until the list has `bytes`, larger ones for a larger `request`; 0: small ones. Returns the driver's
 * answer. */
CUresult pool_chunk_list_make(pool *self, uint64_t request, uint64_t bytes, pool_chunk_list *chunks,
                              pool_outcome *outcome);

/* Remappable bytes in an address range, in chunks of at most `room`. The pool's lock is held. */
uint64_t pool_remappable_bytes(const pool *self, CUdeviceptr from, CUdeviceptr to, uint64_t room, bool may_wait);

/* Unmaps free chunks until the list has how->needed, or none is left. *host: no host memory. */
void pool_chunk_list_collect(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks, bool *host);

/* Returns a remappable chunk of any size, so that others can be made. False if all of them have less than `enough`, or
 * none could be returned. */
bool pool_chunk_list_give_back(pool *self, const pool_remap_terms *how, uint64_t enough);

/* Maps the list and gives access; all or nothing. *call: what failed. */
CUresult pool_chunk_list_map(pool *self, const pool_chunk_list *chunks, CUdeviceptr address, const char **call);

/* Unmaps chunks and returns them. False if one is still mapped. */
bool pool_chunk_list_drop(pool *self, const uint32_t *chunks, size_t count);

#endif
