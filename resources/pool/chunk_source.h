/* Page sources: where a pool's frames come from. A frame is a piece of physical memory that is got and given back as
 * one. There are three, each in a file of its own:
 *
 *     source_mapped.c  the driver's virtual memory management: frames are mapped where they are needed, and moved
 *     source_below.c   the layer below the pool: a frame is a block of it, which stays at its address
 *     source_direct.c  cuMemAlloc, where the device has no virtual memory management: the same
 *
 * Those whose frames move are called with the pool's growth lock held. Those whose frames stay may come to layers that
 * are not Strata's, so that no lock is held around their calls. */
#ifndef STRATA_RESOURCES_POOL_CHUNK_SOURCE_H
#define STRATA_RESOURCES_POOL_CHUNK_SOURCE_H

#include "core/streams/device.h"

#include <strata/async.h>
#include <strata/resource.h>

struct pool_chunk_store;
struct pool_chunk;

/* Who is to have the memory, beside the pool's own device and process. */
typedef struct pool_sharing {
    strata_export_type export_type;
    uint64_t peers; /* see resources/pool/peers.h */
    bool all_peers;
} pool_sharing;

typedef struct pool_chunk_source {
    bool remappable;       /* frames are mapped, and can be where another one is wanted */
    const char *make_call; /* of the driver, by which a frame is made; NULL: none is known */

    /* Finds out what sizes frames have (pages->granule) and where they can be mapped (pages->base, pages->bytes: no
     * request can be larger). Errors: DRIVER, OUT_OF_MEMORY and what is below. */
    strata_status (*open)(struct pool_chunk_store *store, const pool_sharing *sharing);

    /* After the last frame was dropped, or could not be. Also where open failed. */
    void (*close)(struct pool_chunk_store *store);

    /* Makes a frame of `bytes`, a multiple of the granule, and fills in what is the source's, and its address if it
     * does not move. drop gives it back, whose memory nothing can touch any more. Errors: OUT_OF_MEMORY, DRIVER, and
     * what a layer below has; they are raised. */
    strata_status (*make)(struct pool_chunk_store *store, uint64_t bytes, struct pool_chunk *out);
    strata_status (*drop)(struct pool_chunk_store *store, const struct pool_chunk *chunk);

    /* Where frames move; else NULL. Nothing can use what was mapped until access was given to it. */
    CUresult (*map)(struct pool_chunk_store *store, const struct pool_chunk *chunk, CUdeviceptr address);
    CUresult (*give_access)(struct pool_chunk_store *store, CUdeviceptr address, uint64_t bytes);
    CUresult (*unmap)(struct pool_chunk_store *store, CUdeviceptr address, uint64_t bytes); /* of frames as a whole */
    CUresult (*share)(struct pool_chunk_store *store, const struct pool_chunk *chunk,
                      void *out); /* see pool_chunk_store_export */

    /* Waits until what was dropped is free below, so that it can be had again. NULL: it is at once. */
    strata_status (*poll)(struct pool_chunk_store *store);
} pool_chunk_source;

extern const pool_chunk_source pool_chunk_source_mapped, pool_source_upstream, pool_source_malloc;

#endif
