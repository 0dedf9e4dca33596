/* A pool's chunks, by number. A remappable chunk is mapped in one place, in an address range many times the device's
 * memory: there is always room next to given memory. One that moved in stream order is mapped in former places too
 * (formers.h). Callers ensure that no work can touch what they unmap or return. Guarded by map_lock, except
 * pool_chunk_store_return. */
#ifndef STRATA_RESOURCES_CHUNKS_CHUNKS_H
#define STRATA_RESOURCES_CHUNKS_CHUNKS_H

#include "core/base/treap.h"
#include "core/streams/clock.h"
#include "resources/chunks/source.h"

typedef struct pool_below {
    strata_block block;
    strata_point ready; /* its allocation, for which its first use waits */
} pool_below;

typedef struct pool_chunk {
    union {
        CUmemGenericAllocationHandle handle; /* remappable */
        pool_below *below;                   /* fixed; NULL: not of a layer below */
        uint32_t next;                       /* next unused number */
    };
    CUdeviceptr address;     /* 0: unmapped */
    uint32_t units;          /* 0: unused number */
    uint32_t held : 26;      /* holds (holds.h) */
    uint32_t side : 1;       /* fixed: pool_side of its extents */
    uint32_t leaving : 1;    /* a thread is returning it */
    uint32_t useless : 1;    /* fixed or contiguous, in no extent: can only be returned */
    uint32_t in_hand : 1;    /* unmapped; a thread is about to map it */
    uint32_t contiguous : 1; /* of one block at a time; mapped at `address` until it is returned */
    uint32_t unmapped : 1;   /* contiguous: a part of its return is done */
    uint32_t former : 31;    /* number of its latest former place; 0: none */
    uint32_t awaited : 1;    /* a thread waits for its former places: it stays where it is */
} pool_chunk;

_Static_assert(sizeof(pool_chunk) == 32, "a block of some MiB can afford its share of a chunk");

enum { POOL_CHUNK_UNIT = 512, POOL_CHUNK_HOLDS = (1 << 26) - 1, POOL_CHUNK_FORMER = INT32_MAX };
#define POOL_CHUNK_MOST ((uint64_t)UINT32_MAX * POOL_CHUNK_UNIT)

static inline uint64_t pool_chunk_bytes(const pool_chunk *chunk)
{
    return (uint64_t)chunk->units * POOL_CHUNK_UNIT;
}

/* The address behind a mapped chunk. */
static inline CUdeviceptr pool_behind_chunk(const pool_chunk *chunk)
{
    return chunk->address + pool_chunk_bytes(chunk);
}

static inline uint32_t pool_chunk_units(uint64_t bytes)
{
    return bytes < POOL_CHUNK_MOST ? (uint32_t)(bytes / POOL_CHUNK_UNIT) : UINT32_MAX;
}

typedef struct pool_former {
    CUdeviceptr address;
    strata_point point; /* a point that its extent waits for, without the write bit; 0: no work is left */
    uint32_t chunk;
    uint32_t extent;         /* at the address; 0: unused number */
    uint32_t earlier, later; /* former places of the chunk; 0: none */
    strata_treap_node links; /* in the order of points; left: the next unused number */
} pool_former;

typedef struct pool_chunk_store {
    strata_device *device;
    const pool_chunk_source *source;
    strata_resource *pool;
    CUmemAllocationProp properties;
    CUmemAllocationProp contiguous; /* of contiguous chunks; guarded by map_lock, as the next */
    uint64_t contiguous_alignment;  /* of the next contiguous chunk's address */
    uint64_t peers;                 /* other devices with access: peers.h */
    bool all_peers;                 /* they were not named */
    CUdeviceptr base;
    uint64_t bytes;     /* of addresses */
    uint64_t granule;   /* of mappings; smallest chunk */
    pool_chunk *chunks; /* from 1 */
    uint32_t chunk_count, chunk_capacity, chunk_free;
    pool_former *formers; /* former places of all chunks, by number, from 1 */
    uint32_t former_count, former_end, former_capacity, former_free; /* in use; numbers, unused ones included */
    uint32_t former_root;                                            /* root of the order of points */
    uint64_t reserved;                                               /* in chunks */
    uint64_t leaving;                                                /* of these, in chunks being returned */
    uint64_t requested;                                              /* in chunks being requested */
    bool abandoned;                                                  /* guarded by map_lock, as the next */
    bool given_up;                                                   /* the addresses were given up */
    strata_pool_hold *holds;                                         /* list of all holds */
    _Atomic uint64_t held_bytes;                                     /* in held chunks; any thread reads */
    CUstream stream;                                                 /* internal, for a layer below; constant */
    struct strata_timeline *timeline;                                /* constant */
    strata_tag tag;                                                  /* constant */
    _Atomic bool unaligned; /* the layer below gave an unaligned block; any thread */
} pool_chunk_store;

/* Where the addresses of the small side begin: half of all. */
static inline CUdeviceptr pool_small_base(const pool_chunk_store *store)
{
    return store->base + (store->bytes / 2 & -store->granule); /* a power of two */
}

/* Whether a chunk may go where that ends once at most `keep` bytes are reserved, and `least` bytes stay. What is being
 * returned counts as gone: two threads may not return the last chunk above the floor each. */
static inline bool pool_chunk_store_spares(const pool_chunk_store *store, uint32_t chunk, uint64_t keep, uint64_t least)
{
    const uint64_t staying = store->reserved - store->leaving, bytes = pool_chunk_bytes(&store->chunks[chunk]);
    return staying > keep && staying >= bytes && staying - bytes >= least;
}

/* Opens the store's source: the layer below, else the device's virtual memory, or, without that or addresses for it,
 * cuMemAlloc. Errors: UNSUPPORTED (export or peers without virtual memory; no access for peers), DRIVER, OUT_OF_MEMORY,
 * OUT_OF_HOST_MEMORY. */
strata_status pool_chunk_store_open(pool_chunk_store *store, strata_resource *pool, strata_device *device,
                                    const strata_pool_options *given, uint64_t peers);

/* Gives the addresses up, in which nothing is mapped. */
void pool_mapped_give_up(pool_chunk_store *store);

/* The largest limit for which a store of mapped memory has addresses. */
uint64_t pool_mapped_limit(const pool_chunk_store *store);

/* For a device whose context has ended: returns all chunks that outlive it, but those that a thread has in hand or a
 * hold keeps, and, if no chunk is left, the addresses. No more chunks are made or mapped. In a call scope. */
void pool_chunk_store_abandon(pool_chunk_store *store);

/* Returns all chunks, and closes the source. */
void pool_chunk_store_close(pool_chunk_store *store);

/* Makes a remappable chunk, which is in no place yet. OUT_OF_MEMORY with *no_host_memory: host memory ran out. */
CUresult pool_chunk_store_make(pool_chunk_store *store, uint64_t bytes, uint32_t *chunk, bool *no_host_memory);

/* Makes a contiguous chunk, mapped and accessible. *call: the driver call that failed. */
CUresult pool_chunk_store_make_contiguous(pool_chunk_store *store, uint64_t bytes, uint64_t alignment, uint32_t *chunk,
                                          bool *no_host_memory, const char **call);

/* Maps a chunk; its memory is accessible after source->give_access. */
CUresult pool_chunk_store_map(pool_chunk_store *store, uint32_t chunk, CUdeviceptr address);

/* Unmaps adjacent chunks, given highest first: all or none. */
CUresult pool_chunk_store_unmap(pool_chunk_store *store, const uint32_t *chunks, size_t count);

/* Returns an unmapped chunk without former places, or a contiguous one. */
CUresult pool_chunk_store_drop(pool_chunk_store *store, uint32_t chunk);

/* Exports a chunk. `out`: an int (file descriptor) or a CUmemFabricHandle, by export type. */
CUresult pool_chunk_store_export(pool_chunk_store *store, uint32_t chunk, void *out);

/* Counts a chunk's bytes as being returned, until the caller subtracts them from store->leaving. Returns them. */
uint64_t pool_chunk_store_begin_return(pool_chunk_store *store, uint32_t chunk);

/* Fixed chunks. number: takes a number for what source->make makes; 0 without host memory. return: gives the memory
 * back, without a lock. forget: gives the number back. set_leaving: a thread returns it, or no
 * longer does. */
uint32_t pool_chunk_store_number(pool_chunk_store *store);
strata_status pool_chunk_store_return(pool_chunk_store *store, pool_chunk *chunk);
void pool_chunk_store_forget(pool_chunk_store *store, uint32_t number);
void pool_chunk_store_set_leaving(pool_chunk_store *store, uint32_t number, bool leaving);

#endif
