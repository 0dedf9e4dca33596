/* Former places: where a chunk that moved in stream order is mapped too, for work there that is not over. A chunk that
 * moves often has several. Each has a number, which others change that are forgotten. Guarded by map_lock. */
#ifndef STRATA_RESOURCES_CHUNKS_FORMERS_H
#define STRATA_RESOURCES_CHUNKS_FORMERS_H

#include "resources/chunks/chunks.h"

/* Of a number from 1 to former_count. */
static inline pool_former *pool_former_at(const pool_chunk_store *store, uint32_t number)
{
    return &store->formers[number - 1];
}

/* A chunk's address, of extent `extent`, becomes a former place, and the chunk counts as unmapped. False without host
 * memory: nothing changed. */
bool pool_formers_leave(pool_chunk_store *store, uint32_t chunk, uint32_t extent);

/* An unmapped chunk's latest one is its address again. Returns the extent there. */
uint32_t pool_formers_go_back(pool_chunk_store *store, uint32_t chunk);

/* Unmaps and forgets it. After an error nothing changed. */
CUresult pool_formers_unmap(pool_chunk_store *store, uint32_t number);

/* Unmaps adjacent ones, by rising address, and forgets none; all or none. */
CUresult pool_formers_unmap_run(pool_chunk_store *store, const uint32_t *numbers, size_t count);

/* Those that were unmapped in runs. */
void pool_formers_forget_unmapped(pool_chunk_store *store);

#endif
