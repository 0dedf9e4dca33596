/* The chunks of a pool, by number. A remappable chunk is mapped as a whole in one place at a time, in an address range
 * many times the device's memory, so that there is always room next to given memory. Callers make sure that no work can
 * touch what they unmap or return. Guarded by map_lock, except pool_chunk_store_request and _return. */
#ifndef STRATA_RESOURCES_POOL_CHUNKS_H
#define STRATA_RESOURCES_POOL_CHUNKS_H

#include "core/streams/clock.h"
#include "resources/pool/chunk_source.h"

/* Of the layer below; see chunks_upstream.c. */
typedef struct pool_below {
    strata_block block;
    strata_point ready; /* its first use waits for it */
} pool_below;

typedef struct pool_chunk {
    union {
        CUmemGenericAllocationHandle handle; /* remappable */
        pool_below *below;                   /* fixed; NULL: not of a layer below */
        uint32_t next;                       /* next unused number */
    };
    CUdeviceptr address;  /* 0: unmapped */
    uint32_t units;       /* 0: unused number */
    uint32_t held : 29;   /* number of holds (hold.c) */
    uint32_t leaving : 1; /* a thread is returning it */
    uint32_t useless : 1; /* fixed, in no extent: can only be returned */
    uint32_t in_hand : 1; /* unmapped; a thread is about to map it */
} pool_chunk;

_Static_assert(sizeof(pool_chunk) == 24, "a block of some MiB can afford its share of a frame");

enum { POOL_CHUNK_UNIT = 512, POOL_CHUNK_HOLDS = (1 << 29) - 1 };
#define POOL_CHUNK_MOST ((uint64_t)UINT32_MAX * POOL_CHUNK_UNIT)

static inline uint64_t pool_chunk_bytes(const pool_chunk *chunk)
{
    return (uint64_t)chunk->units * POOL_CHUNK_UNIT;
}

static inline uint32_t pool_chunk_units(uint64_t bytes)
{
    return bytes < POOL_CHUNK_MOST ? (uint32_t)(bytes / POOL_CHUNK_UNIT) : UINT32_MAX;
}

typedef struct pool_chunk_store {
    strata_device *device;
    const pool_chunk_source *source;
    strata_resource *pool;
    CUmemAllocationProp properties;
    uint64_t peers; /* devices with access; see peers.h */
    CUdeviceptr base;
    uint64_t bytes;     /* of addresses */
    uint64_t granule;   /* of mappings, or the smallest chunk */
    pool_chunk *chunks; /* from 1 */
    uint32_t chunk_count, chunk_capacity, chunk_free;
    uint64_t reserved;                /* in chunks */
    uint64_t requested;               /* in chunks requested from the source */
    CUstream stream;                  /* internal, for a layer below; constant */
    struct strata_timeline *timeline; /* constant */
    strata_tag tag;                   /* constant */
    _Atomic bool unaligned;           /* the layer below gave an unaligned block; any thread */
} pool_chunk_store;

/* From the layer below, the device's virtual memory, or cuMemAlloc. Errors: UNSUPPORTED (export or peers without
 * virtual memory; no access for peers), DRIVER, OUT_OF_MEMORY, OUT_OF_HOST_MEMORY. */
strata_status pool_chunk_store_open(pool_chunk_store *store, strata_resource *pool, strata_device *device,
                                    const pool_sharing *sharing);

/* Returns all chunks. */
void pool_chunk_store_close(pool_chunk_store *store);

/* Returns the driver's answer; OUT_OF_MEMORY with *host set: no host memory. */
CUresult pool_chunk_store_make(pool_chunk_store *store, uint64_t bytes, uint32_t *chunk, bool *host);

/* Memory is accessible after pool_chunk_store_give_access. */
CUresult pool_chunk_store_map(pool_chunk_store *store, uint32_t chunk, CUdeviceptr address);

CUresult pool_chunk_store_give_access(pool_chunk_store *store, CUdeviceptr address, uint64_t bytes);

/* Adjacent chunks, highest first; all or none. */
CUresult pool_chunk_store_unmap(pool_chunk_store *store, const uint32_t *chunks, size_t count);

/* Returns an unmapped chunk to the source. */
CUresult pool_chunk_store_drop(pool_chunk_store *store, uint32_t chunk);

/* A file descriptor (int) or a CUmemFabricHandle, by the export type. */
CUresult pool_chunk_store_export(pool_chunk_store *store, uint32_t chunk, void *out);

/* Fixed chunks: a number (0 without host memory); the request and the return, without a lock; releasing the number. */
uint32_t pool_chunk_store_number(pool_chunk_store *store);
strata_status pool_chunk_store_request(pool_chunk_store *store, uint64_t bytes, pool_chunk *out);
strata_status pool_chunk_store_return(pool_chunk_store *store, const pool_chunk *chunk);
void pool_chunk_store_forget(pool_chunk_store *store, uint32_t number);

#endif
