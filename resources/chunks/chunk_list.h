/* Chunks on their way to consecutive addresses, and runs of neighbours, which one call unmaps. */
#ifndef STRATA_RESOURCES_CHUNKS_CHUNK_LIST_H
#define STRATA_RESOURCES_CHUNKS_CHUNK_LIST_H

#include "resources/chunks/chunks.h"

/* Chunks, by number. The list's owner frees `numbers`. */
typedef struct pool_chunk_list {
    uint32_t *numbers;
    size_t count, capacity;
    uint64_t bytes;
    size_t moved; /* chunks that were unmapped for it */
} pool_chunk_list;

/* Adds a chunk. False without host memory: nothing changed. */
bool pool_chunk_list_add(pool_chunk_list *chunks, const pool_chunk_store *store, uint32_t number);

/* Sorts chunks by address, highest first, as pool_chunk_store_unmap takes them. */
void pool_chunks_sort(const pool_chunk_store *store, uint32_t *numbers, size_t count);

/* How many sorted chunks are adjacent, the first one included, and their bytes. */
size_t pool_chunks_run(const pool_chunk_store *store, const uint32_t *numbers, size_t count, uint64_t *bytes);

#endif
