/* Former places: where a chunk that moved in stream order is mapped too, for work there that is not over. A chunk that
 * moves often has several. Guarded by map_lock. */
#ifndef STRATA_RESOURCES_CHUNKS_FORMERS_H
#define STRATA_RESOURCES_CHUNKS_FORMERS_H

#include "resources/chunks/chunks.h"

/* A chunk's address becomes a former place, and the chunk counts as unmapped. False without host memory: nothing
 * changed. */
bool pool_formers_leave(pool_chunk_store *store, uint32_t chunk);

/* An unmapped chunk's latest one is its address again. */
void pool_formers_go_back(pool_chunk_store *store, uint32_t chunk);

/* A chunk's latest one; 0: none. */
CUdeviceptr pool_formers_latest(const pool_chunk_store *store, uint32_t chunk);

/* Adjacent ones; all or none. */
CUresult pool_formers_unmap(pool_chunk_store *store, CUdeviceptr from, uint64_t bytes);

#endif
