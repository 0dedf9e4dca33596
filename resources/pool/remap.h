/* Chunks on their way to a request: new ones, and free complete ones that are unmapped elsewhere. map_lock is held
 * throughout. */
#ifndef STRATA_RESOURCES_POOL_REMAP_H
#define STRATA_RESOURCES_POOL_REMAP_H

#include "resources/pool/internal.h"

/* Unmapped chunks, to be mapped at consecutive addresses. The owner of the list frees its numbers. */
typedef struct pool_chunk_list {
    uint32_t *numbers;
    size_t count, capacity;
    uint64_t bytes;
    uint64_t remapped;  /* bytes of chunks that were unmapped elsewhere */
    uint64_t making_ns; /* nanoseconds spent making the others */
} pool_chunk_list;

/* Which chunks are remapped. */
typedef struct pool_remap_terms {
    CUdeviceptr from, to; /* destination of the request: nothing is taken from there */
    uint64_t needed;      /* bytes that the list must have */
    uint64_t room;        /* most bytes of the list: chunks are mapped as a whole */
    bool may_wait;        /* pending memory may be waited for; oom_lock is held */
} pool_remap_terms;

/* Makes chunks until `bytes` are in the list, larger ones for a larger `request`; 0: prefer small ones. Returns the
 * driver's answer. */
CUresult pool_chunk_list_make(pool *self, uint64_t request, uint64_t bytes, pool_chunk_list *chunks,
                              pool_outcome *outcome);

/* Bytes of the chunks in an address range that could be remapped, none larger than `room`. The lock is held. */
uint64_t pool_remappable_bytes(const pool *self, CUdeviceptr from, CUdeviceptr to, uint64_t room, bool may_wait);

/* Unmaps free chunks until `needed` bytes are in the list or none is left; *host: no host memory. */
void pool_chunk_list_collect(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks, bool *host);

/* Returns a remappable chunk of any size to the device, so that others can be made. False if there is none, or if all
 * of them have less than `enough`. */
bool pool_chunk_list_give_back(pool *self, const pool_remap_terms *how, uint64_t enough);

/* Maps chunks from an address on and gives access. After a failure none is mapped; *call is what failed. */
CUresult pool_chunk_list_map(pool *self, const pool_chunk_list *chunks, CUdeviceptr address, const char **call);

/* Unmaps chunks and returns them to the device. False if one is still mapped. */
bool pool_chunk_list_drop(pool *self, const uint32_t *chunks, size_t count);

#endif
