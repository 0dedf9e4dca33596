/* Sources of chunks, physical memory made and returned as a whole:
 *
 *     mapped.c      virtual memory management; mapped where needed: remappable
 *     upstream.c    blocks of the layer below the pool: fixed
 *     malloc.c      cuMemAlloc, on a device without virtual memory management: fixed
 *     contiguous.c  beside the first: a chunk for each large block, at addresses of its own
 *
 * Remappable sources are called with map_lock held; fixed ones without a lock, since they may call layers outside
 * Strata. */
#ifndef STRATA_RESOURCES_CHUNKS_SOURCE_H
#define STRATA_RESOURCES_CHUNKS_SOURCE_H

#include "core/streams/device.h"

#include <strata/pool.h>

struct pool_chunk_store;
struct pool_chunk;

typedef struct pool_chunk_source {
    bool remappable;
    const char *make_call; /* NULL: unknown */

    /* Sets store->granule, and store->base and ->bytes, the addresses for mapping; bytes also bounds a request.
     * store->peers are those of the options; all peers are found here. Errors: DRIVER, OUT_OF_MEMORY, those of layers
     * below. */
    strata_status (*open)(struct pool_chunk_store *store, const strata_pool_options *given);

    /* After the last chunk was dropped or could not be, and after a failed open. */
    void (*close)(struct pool_chunk_store *store);

    /* make: `bytes` is a multiple of the granule; sets the source's members and the address of a fixed or contiguous
     * chunk. drop: no work can touch the chunk; after an error it may be tried again. Errors: OUT_OF_MEMORY, DRIVER,
     * those of layers below. */
    strata_status (*make)(struct pool_chunk_store *store, uint64_t bytes, struct pool_chunk *out);
    strata_status (*drop)(struct pool_chunk_store *store, struct pool_chunk *chunk);

    /* Remappable sources. Memory is accessible only after give_access. */
    CUresult (*map)(struct pool_chunk_store *store, const struct pool_chunk *chunk, CUdeviceptr address);
    CUresult (*give_access)(struct pool_chunk_store *store, CUdeviceptr address, uint64_t bytes);
    CUresult (*unmap)(struct pool_chunk_store *store, CUdeviceptr address, uint64_t bytes); /* whole chunks */
    CUresult (*share)(struct pool_chunk_store *store, const struct pool_chunk *chunk,
                      void *out); /* as pool_chunk_store_export */

    /* Waits until dropped chunks are free below. NULL: at once. */
    strata_status (*drain)(struct pool_chunk_store *store);
} pool_chunk_source;

/* Whether the address is in a chunk that cuMemAlloc made, of any pool. */
bool pool_malloc_holds(CUdeviceptr address);

extern const pool_chunk_source pool_chunk_source_mapped, pool_chunk_source_upstream, pool_chunk_source_malloc,
    pool_chunk_source_contiguous;

#endif
