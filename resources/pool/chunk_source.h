/* Sources of chunks. A chunk is physical memory that is obtained and returned as a whole:
 *
 *     chunks_mapped.c    virtual memory management: chunks are mapped where needed, and remappable
 *     chunks_upstream.c  the layer below the pool: a chunk is a block of it, at a fixed address
 *     chunks_malloc.c    cuMemAlloc, on a device without virtual memory management; fixed
 *
 * Remappable sources are called with the pool's map_lock held. Fixed ones may call layers outside of Strata, so they
 * are called without a lock. */
#ifndef STRATA_RESOURCES_POOL_CHUNK_SOURCE_H
#define STRATA_RESOURCES_POOL_CHUNK_SOURCE_H

#include "core/streams/device.h"

#include <strata/async.h>
#include <strata/resource.h>

struct pool_chunk_store;
struct pool_chunk;

/* Access to the memory beyond the pool's device and process. */
typedef struct pool_sharing {
    strata_export_type export_type;
    uint64_t peers; /* see peers.h */
    bool all_peers;
} pool_sharing;

typedef struct pool_chunk_source {
    bool remappable;       /* chunks are mapped, and can be remapped */
    const char *make_call; /* driver call that makes a chunk; NULL: unknown */

    /* Sets the chunk granularity (store->granule) and the addresses for mapping (store->base, store->bytes; no request
     * can be larger). Errors: DRIVER, OUT_OF_MEMORY, and those of layers below. */
    strata_status (*open)(struct pool_chunk_store *store, const pool_sharing *sharing);

    /* Called after the last chunk was dropped or could not be; also after a failed open. */
    void (*close)(struct pool_chunk_store *store);

    /* make: a chunk of `bytes`, a multiple of the granule; fills in the source's members, and the address of a fixed
     * chunk. drop: returns it; no work can touch it. Errors are raised: OUT_OF_MEMORY, DRIVER, and those of layers
     * below. */
    strata_status (*make)(struct pool_chunk_store *store, uint64_t bytes, struct pool_chunk *out);
    strata_status (*drop)(struct pool_chunk_store *store, const struct pool_chunk *chunk);

    /* Remappable sources only, else NULL. Mapped memory is not accessible before give_access. */
    CUresult (*map)(struct pool_chunk_store *store, const struct pool_chunk *chunk, CUdeviceptr address);
    CUresult (*give_access)(struct pool_chunk_store *store, CUdeviceptr address, uint64_t bytes);
    CUresult (*unmap)(struct pool_chunk_store *store, CUdeviceptr address, uint64_t bytes); /* whole chunks */
    CUresult (*share)(struct pool_chunk_store *store, const struct pool_chunk *chunk,
                      void *out); /* see pool_chunk_store_export */

    /* Waits until dropped chunks are free below and can be made again. NULL: they are at once. */
    strata_status (*drain)(struct pool_chunk_store *store);
} pool_chunk_source;

extern const pool_chunk_source pool_chunk_source_mapped, pool_chunk_source_upstream, pool_chunk_source_malloc;

#endif
