/* The frames that a pool has, by their numbers, and the calls for them. A frame that moves is mapped in one place at a
 * time, whole; the range that it is mapped in is many times as large as the device's memory, so that a place for a
 * mapping is always found next to what it is to join. Nothing here knows what is free: the pool says what is mapped and
 * unmapped and given back, and that nothing submitted can touch it any more. All is guarded by the pool's growth lock,
 * but for what pool_chunk_store_request and pool_chunk_store_return do. */
#ifndef STRATA_RESOURCES_POOL_CHUNKS_H
#define STRATA_RESOURCES_POOL_CHUNKS_H

#include "core/streams/clock.h"
#include "resources/pool/chunk_source.h"

/* What a frame has that is a block of the layer below, see source_below.c. */
typedef struct pool_below {
    strata_block block; /* as the layer below has it */
    strata_point ready; /* what its first use comes after */
} pool_below;

typedef struct pool_chunk {
    union {
        CUmemGenericAllocationHandle handle; /* of one that moves */
        pool_below *below;                   /* of one that stays; NULL: it is of no layer below */
        uint32_t next;                       /* of the free numbers */
    };
    CUdeviceptr address;  /* where it is mapped, or stays; 0: nowhere */
    uint32_t units;       /* of POOL_CHUNK_UNIT bytes; 0: no frame has this number */
    uint32_t held : 29;   /* by how many holds (resources/pool/hold.c): while there is one, it stays */
    uint32_t leaving : 1; /* somebody gives it back, or tries to */
    uint32_t useless : 1; /* it stays, and its memory is in no piece: there is nothing to do but to give it back */
    uint32_t in_hand : 1; /* mapped nowhere, and about to be: it is the thread's that moves it */
} pool_chunk;

_Static_assert(sizeof(pool_chunk) == 24, "a block of some MiB can afford its share of a frame");

/* Sizes of frames are multiples of the first. Of what is larger than the second, a frame has so much. */
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
    strata_resource *pool; /* whose they are */
    CUmemAllocationProp properties;
    uint64_t peers; /* that have access to what is mapped, see resources/pool/peers.h */
    CUdeviceptr base;
    uint64_t bytes;     /* of addresses */
    uint64_t granule;   /* what the device maps memory in, or the least frame */
    pool_chunk *chunks; /* by number, from 1 */
    uint32_t chunk_count, chunk_capacity, chunk_free;
    uint64_t reserved;                /* bytes in frames */
    uint64_t asked;                   /* bytes in frames that somebody asks the source for */
    CUstream stream;                  /* the pool's own, for a layer below; constant, like the next one */
    struct strata_timeline *timeline; /* of that */
    strata_tag tag;                   /* of the frames; the same */
    _Atomic bool unaligned; /* the layer below has given blocks that do not begin where pieces do; any thread */
} pool_chunk_store;

/* Opens the pages of a pool that stands in a stack: over the layer below, or where there is none over the device's
 * virtual memory, or where there is none of that over cuMemAlloc. Errors: UNSUPPORTED (an export type or peers without
 * virtual memory, peers that have no access), DRIVER, OUT_OF_MEMORY, OUT_OF_HOST_MEMORY. */
strata_status pool_chunk_store_open(pool_chunk_store *store, strata_resource *pool, strata_device *device,
                                    const pool_sharing *sharing);

/* Gives everything back. No work can touch it any more. */
void pool_chunk_store_close(pool_chunk_store *store);

/* Makes a frame, mapped nowhere; *frame is its number. The driver's answer; OUT_OF_MEMORY too without host memory, with
 * *host set. */
CUresult pool_chunk_store_make(pool_chunk_store *store, uint64_t bytes, uint32_t *chunk, bool *host);

/* Maps a frame that is mapped nowhere. Nothing can access it until pool_chunk_store_give_access. */
CUresult pool_chunk_store_map(pool_chunk_store *store, uint32_t chunk, CUdeviceptr address);

/* Lets the device and its peers read and write what was mapped in a range. */
CUresult pool_chunk_store_give_access(pool_chunk_store *store, CUdeviceptr address, uint64_t bytes);

/* Takes frames out of their places, which lie one before the other, the last one lowest. On failure none of them. */
CUresult pool_chunk_store_unmap(pool_chunk_store *store, const uint32_t *chunks, size_t count);

/* Gives a frame that is mapped nowhere back to the device. */
CUresult pool_chunk_store_drop(pool_chunk_store *store, uint32_t chunk);

/* Makes a handle of a frame that other processes can import: *out is a file descriptor, an int, or a CUmemFabricHandle,
 * as the pages' export type says. */
CUresult pool_chunk_store_export(pool_chunk_store *store, uint32_t chunk, void *out);

/* The same for frames that stay where they are, step by step: a number for one, 0 without host memory; what is asked of
 * the source, without any lock; and the end of a number, whose frame was given back or never came. */
uint32_t pool_chunk_store_number(pool_chunk_store *store);
strata_status pool_chunk_store_request(pool_chunk_store *store, uint64_t bytes, pool_chunk *out);
strata_status pool_chunk_store_return(pool_chunk_store *store, const pool_chunk *chunk);
void pool_chunk_store_forget(pool_chunk_store *store, uint32_t number);

#endif
