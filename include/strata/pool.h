/* `pool`: serves blocks from large chunks of memory without a driver call (docs/layers/pool.md).
 *
 * A pool stands last and takes memory from the device: through virtual memory management, and then remaps free memory
 * to where it is needed, else through cuMemAlloc. Or it stands over other layers, "pool, budget(limit=8GiB), direct",
 * which then count and limit its chunks; no lock is held while they are called.
 *
 * A freed block is free at once: for the stream of the free without a wait, for others after a wait that the pool
 * inserts where necessary. Recorded uses stay with the memory. */
#ifndef STRATA_POOL_H
#define STRATA_POOL_H

#include <strata/resource.h>
#include <strata/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a pool does first. */
typedef enum strata_pool_preference {
    STRATA_POOL_PREFER_BALANCED, /* 44 thousandths more than is live, and more after each move */
    STRATA_POOL_PREFER_MEMORY,   /* 44 thousandths more than is live, in smaller chunks */
    STRATA_POOL_PREFER_SPEED,    /* half of what is left below the nearest limit more */
} strata_pool_preference;

typedef struct strata_pool_options {
    uint32_t size;
    uint64_t initial_size; /* bytes reserved when the stack is built; requests fail until they could be reserved */
    uint64_t max_size;     /* bytes that may be reserved; 0: only the device's limit */
    union {
        uint64_t overhead; /* thousandths of the most live bytes, at most 1,000,000, that are reserved beyond them
                              before memory is moved, or given back where it cannot be moved; a given value is kept; 0:
                              as `prefer` says. At most half of what is left below the nearest limit */
        uint64_t slack;    /* its old name */
    };
    union {
        uint64_t chunk; /* bytes of the largest chunk, rounded up to the device's granularity; 0: 32 MiB or a quarter of
                           the request (4 MiB with STRATA_POOL_PREFER_MEMORY; where memory cannot be moved, 16 MiB), and
                           at most a 512th of what is left below the nearest limit */
        uint64_t frame; /* its old name */
    };
    uint64_t cache;             /* bytes, for each thread and stream; 0: 4 MiB */
    uint64_t release_threshold; /* bytes that stay reserved when the program waits for all frees
                                   (strata_runtime_reap_pending); 0: all */
    bool release_all;           /* instead: return all free memory */
    uint64_t decay; /* nanoseconds. Memory unused for so long is returned, down to release_threshold and initial_size.
                       0: ten seconds, none in a deterministic pool; STRATA_NEVER */
    /* What a stream may take of memory that others freed, named as the driver's pool attributes. Default: on. */
    strata_switch follow_event_dependencies; /* whose frees the stream already waited for */
    strata_switch opportunistic;             /* found to be complete; off in a deterministic pool */
    strata_switch internal_dependencies;     /* other memory, behind a wait that the pool inserts */
    bool deterministic; /* equal calls in equal order by one thread give equal addresses, relative to the pool's first,
                           whatever the device's progress or the clock; excludes a decay */
    strata_export_type export_type; /* of the chunks, for strata_pool_export */
    /* Devices that access the memory on their own streams: mapped chunks are otherwise accessible to the pool's device
     * alone, whatever cuCtxEnablePeerAccess says (CUDA Driver API, cuMemSetAccess). */
    const int *peers; /* read during the call; the pool's device is ignored */
    size_t peer_count;
    bool all_peers; /* instead: each with cuDeviceCanAccessPeer. Where the pool maps no memory itself, for want of
                       virtual memory management or of addresses, each to which the program gives access
                       (cuCtxEnablePeerAccess) */
    strata_pool_preference prefer;
    uint64_t contiguous; /* bytes, at least 1 MiB: blocks of this size and more lie in one cuMemCreate each, with every
                            exportable handle type of the device (file descriptor; fabric, where the machine makes such
                            handles), rounded up to the device's granularity, and counted so by budgets. Such a chunk is
                            another block's only after the free, and as a whole; 0: none */
} strata_pool_options;

/* Makes the layer. Building it into a stack can fail with UNSUPPORTED (an export type, peers or contiguous blocks over
 * another layer or, but for all_peers, without virtual memory management; handles that the device does not make; a peer
 * without access), INVALID_VALUE (no such peer), DRIVER, OUT_OF_MEMORY (of addresses). */
STRATA_API strata_status strata_pool_create(int ordinal, const strata_pool_options *options, strata_resource **out);

/* ---- memory that is known outside of the pool ----
 *
 * The pool remaps and returns chunks. Where something besides the program's streams knows the physical memory of a
 * block (a network card, another process, a graph that will run again), a hold keeps the memory where it is. It
 * concerns addresses alone: a freed block's memory is reused as always, and no access by cards or processes is waited
 * for. Free the block when they are done, and end the hold then or later: a late access meets memory of this pool,
 * never an unmapped address.
 *
 * A hold covers whole chunks with all blocks in them (value "pool.held", bytes), and ends with its pool at the latest.
 */
typedef struct strata_pool_hold strata_pool_hold;

/* A chunk that the block lies in; a block may span many. */
typedef struct strata_pool_part {
    CUdeviceptr address;      /* of the block's first byte there, in this process */
    size_t bytes;             /* of the block there */
    size_t offset;            /* of that byte in the chunk */
    size_t handle_bytes;      /* of the chunk: what an importer maps */
    int fd;                   /* exported with export=fd; else -1 */
    unsigned char fabric[64]; /* with export=fabric a CUmemFabricHandle; else zeros */
} strata_pool_part;

/* Holds a live block's chunks where they are, any number of times. `resource` is the pool or a layer above it. An empty
 * block has no parts. On failure *out is NULL. Errors: INVALID_VALUE (no pool in the stack), FOREIGN_POINTER (not the
 * pool's memory, such as a sample of the guard), SIZE_MISMATCH, USE_AFTER_FREE, OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_pool_hold_begin(strata_resource *resource, const strata_block *block,
                                                strata_pool_hold **out);

/* As strata_pool_hold_begin, with a handle for other processes in each part (CUDA Driver API,
 * cuMemExportToShareableHandle). The receiver of all handles imports each with cuMemImportFromShareableHandle, maps
 * handle_bytes of each at consecutive addresses, and finds the block at the first part's offset; it also sees other
 * blocks there. The caller closes the file descriptors, at any time. Errors: as above, UNSUPPORTED (a pool without an
 * export type), DRIVER. */
STRATA_API strata_status strata_pool_export(strata_resource *resource, const strata_block *block,
                                            strata_pool_hold **out);

/* The parts by address, valid until the hold ends. NULL and 0 for NULL. */
STRATA_API const strata_pool_part *strata_pool_hold_parts(const strata_pool_hold *hold, size_t *count);

/* Ends a hold, before the pool ends. NULL is ignored. */
STRATA_API void strata_pool_hold_end(strata_pool_hold *hold);

/* ---- what is reserved ---- */

/* Addresses with memory, one behind the other, in blocks or free. */
typedef struct strata_pool_range {
    CUdeviceptr address;
    size_t bytes;
    bool small; /* where blocks below 1 MiB are placed first */
} strata_pool_range;

/* Calls visit(range, data) for each longest range of addresses with memory, by address. `resource` is the pool or a
 * layer above it. A range that is mapped or unmapped meanwhile is seen before or after. No lock is held around `visit`.
 * Errors: INVALID_VALUE (no pool in the stack, or `visit` is NULL), FORKED. */
STRATA_API strata_status strata_pool_visit_ranges(strata_resource *resource,
                                                  void (*visit)(const strata_pool_range *range, void *data),
                                                  void *data);

#ifdef __cplusplus
}
#endif

#endif
