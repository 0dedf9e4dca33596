/* The store of a pool's chunks, by number, and the calls on them. A remappable chunk is mapped as a whole in one place
 * at a time, in an address range many times the device's memory, so that a place next to given memory is always found.
 * The store does not know what is free: the pool says what is mapped, unmapped and returned, and that no submitted work
 * can touch it. Guarded by the pool's map_lock, except pool_chunk_store_request and _return. */
#ifndef STRATA_RESOURCES_POOL_CHUNKS_H
#define STRATA_RESOURCES_POOL_CHUNKS_H

#include "core/streams/clock.h"
#include "resources/pool/chunk_source.h"

/* A chunk that is a block of the layer below: chunks_upstream.c. */
typedef struct pool_below {
    strata_block block; /* as the layer below knows it */
    strata_point ready; /* its first use waits for this point */
} pool_below;

typedef struct pool_chunk {
    union {
        CUmemGenericAllocationHandle handle; /* remappable chunk */
        pool_below *below;                   /* fixed chunk; NULL: not of a layer below */
        uint32_t next;                       /* next unused number */
    };
    CUdeviceptr address;  /* where it is mapped or fixed; 0: unmapped */
    uint32_t units;       /* of POOL_CHUNK_UNIT bytes; 0: unused number */
    uint32_t held : 29;   /* number of holds (hold.c); a held chunk stays */
    uint32_t leaving : 1; /* being returned by some thread */
    uint32_t useless : 1; /* fixed, and in no extent: it can only be returned */
    uint32_t in_hand : 1; /* unmapped, about to be mapped by the thread that remaps it */
} pool_chunk;

_Static_assert(sizeof(pool_chunk) == 24, "a block of some MiB can afford its share of a frame");

/* Sizes of chunks are multiples of POOL_CHUNK_UNIT, at most POOL_CHUNK_MOST. */
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
    strata_resource *pool; /* the owner of the chunks */
    CUmemAllocationProp properties;
    uint64_t peers; /* devices with access; see peers.h */
    CUdeviceptr base;
    uint64_t bytes;     /* of addresses */
    uint64_t granule;   /* mapping granularity of the device, or smallest chunk */
    pool_chunk *chunks; /* by number, from 1 */
    uint32_t chunk_count, chunk_capacity, chunk_free;
    uint64_t reserved;                /* bytes in chunks */
    uint64_t requested;               /* bytes in chunks being requested from the source */
    CUstream stream;                  /* internal stream for a layer below; constant */
    struct strata_timeline *timeline; /* of `stream`; constant */
    strata_tag tag;                   /* of the chunks; constant */
    _Atomic bool unaligned;           /* the layer below gave blocks that are not aligned to extents; any thread */
} pool_chunk_store;

/* Opens the store of a pool in a stack: over the layer below, or the device's virtual memory, or cuMemAlloc. Errors:
 * UNSUPPORTED (an export type or peers without virtual memory; peers without access), DRIVER, OUT_OF_MEMORY,
 * OUT_OF_HOST_MEMORY. */
strata_status pool_chunk_store_open(pool_chunk_store *store, strata_resource *pool, strata_device *device,
                                    const pool_sharing *sharing);

/* Returns everything. No work can touch it. */
void pool_chunk_store_close(pool_chunk_store *store);

/* Makes an unmapped chunk; *chunk is its number. Returns the driver's answer; OUT_OF_MEMORY also without host memory,
 * with *host set. */
CUresult pool_chunk_store_make(pool_chunk_store *store, uint64_t bytes, uint32_t *chunk, bool *host);

/* Maps an unmapped chunk. It is not accessible before pool_chunk_store_give_access. */
CUresult pool_chunk_store_map(pool_chunk_store *store, uint32_t chunk, CUdeviceptr address);

/* Gives the device and its peers access to a mapped range. */
CUresult pool_chunk_store_give_access(pool_chunk_store *store, CUdeviceptr address, uint64_t bytes);

/* Unmaps adjacent chunks, listed from the lowest address; all or none. */
CUresult pool_chunk_store_unmap(pool_chunk_store *store, const uint32_t *chunks, size_t count);

/* Returns an unmapped chunk to the device. */
CUresult pool_chunk_store_drop(pool_chunk_store *store, uint32_t chunk);

/* Makes a handle of a chunk for other processes: a file descriptor (int) or a CUmemFabricHandle, by the export type. */
CUresult pool_chunk_store_export(pool_chunk_store *store, uint32_t chunk, void *out);

/* For fixed chunks, step by step: a number (0 without host memory); the request to the source, without a lock;
 * returning one; and releasing a number whose chunk was returned or never came. */
uint32_t pool_chunk_store_number(pool_chunk_store *store);
strata_status pool_chunk_store_request(pool_chunk_store *store, uint64_t bytes, pool_chunk *out);
strata_status pool_chunk_store_return(pool_chunk_store *store, const pool_chunk *chunk);
void pool_chunk_store_forget(pool_chunk_store *store, uint32_t number);

#endif
