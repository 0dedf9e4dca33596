/* `pool`: serves blocks from large chunks of memory without a driver call.
 *
 * A pool stands last in a stack and takes memory from the device: through virtual memory management, so that free
 * memory can be remapped to where it is needed, or through cuMemAlloc on a device without it. Or it stands over other
 * layers, "pool, budget(limit=8GiB), direct", and takes its chunks from those: they count and limit what the pool
 * reserves, the layers above count its blocks. The pool holds no lock while a layer below is called. Text:
 *
 * - pool(initial_size=SIZE, max_size=SIZE, slack=THOUSANDTHS, frame=SIZE, cache=SIZE, release_threshold=SIZE,
 *   release_all=on|off, decay=DURATION, opportunistic=default|on|off, follow_event_dependencies=default|on|off,
 *   internal_dependencies=default|on|off, deterministic=on|off, export=none|fd|fabric, peers=ORDINAL;ORDINAL;...|all)
 *
 * initial_size, max_size and release_threshold may be shares of the device's memory, as in max_size=50%; decay=0
 * disables decay.
 *
 * A freed block is free memory at once: for the stream of the free without a wait, for other streams after a wait that
 * the pool inserts where necessary. Recorded uses of the block stay with the memory. */
#ifndef STRATA_POOL_H
#define STRATA_POOL_H

#include <strata/resource.h>
#include <strata/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero is the default. */
typedef struct strata_pool_options {
    uint32_t size;         /* sizeof(strata_pool_options), or 0 */
    uint64_t initial_size; /* bytes reserved with the first request, which fails if they cannot be had */
    uint64_t max_size;     /* bytes that may be reserved; 0: only the device's limit */
    uint64_t slack; /* overhead limit: thousandths of the peak of live bytes, up to 1,000,000, that may be reserved
                       above it before free memory is remapped instead; 0: 44, rising where remapping takes much of the
                       time or streams keep taking each other's memory (docs/pool.md). Where memory cannot be remapped:
                       before wholly free chunks are returned; 0: 500 */
    uint64_t frame; /* bytes of the largest chunk, rounded up to the device's granularity; 0: 16 MiB. Smaller chunks can
                       be remapped more often and cost more each time. Where memory cannot be remapped: of the largest
                       chunk for several blocks, in multiples of 2 MiB; 0: 64 MiB */
    uint64_t cache; /* bytes that a thread caches for each stream; 0: 4 MiB */
    uint64_t release_threshold; /* bytes that stay reserved when the program waits for all frees
                                   (strata_runtime_reap_pending); free memory above it is returned then. 0: nothing is
                                   returned */
    bool release_all;           /* instead of a threshold: return all free memory */
    uint64_t decay; /* nanoseconds. Of the memory unused for this long half is returned, then half of the rest after the
                       same time, and so on, down to release_threshold. 0: never */
    /* What a stream may take of memory that others freed; named as the attributes of the driver's pools. All on by
     * default. */
    strata_switch follow_event_dependencies; /* memory whose frees the stream already waited for */
    strata_switch opportunistic;             /* memory found to be complete; off in a deterministic pool */
    strata_switch internal_dependencies;     /* other memory, behind a wait that the pool inserts */
    bool deterministic; /* equal calls in equal order by one thread give equal addresses, relative to the pool's first:
                           nothing depends on the device's progress or the clock, so decay is not possible */
    strata_export_type export_type; /* handle type of the chunks, for strata_pool_export */
    /* Devices that access the memory on their own streams. Chunks that the pool maps are otherwise accessible to the
     * pool's device alone, whatever cuCtxEnablePeerAccess says (CUDA Driver API, cuMemSetAccess). */
    const int *peers;  /* ordinals, read during the call; the pool's own device is ignored */
    size_t peer_count; /* 0: none */
    bool all_peers;    /* instead: every device for which cuDeviceCanAccessPeer is true */
} strata_pool_options;

/* Makes a pool for the device with this ordinal, to be built into a stack, last or over other layers. NULL options: the
 * defaults. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER.
 *
 * The source of its memory is chosen when the stack is built. The build can then fail with UNSUPPORTED (an export type,
 * peers or decay over another layer or without virtual memory management; handles that the device does not make; a peer
 * without access), INVALID_VALUE (no such peer), DRIVER, OUT_OF_MEMORY (of addresses). */
STRATA_API strata_status strata_pool_create(int ordinal, const strata_pool_options *options, strata_resource **out);

/* ---- memory that is known outside of the pool ----
 *
 * The pool remaps chunks to save memory, and returns some. Where something besides the program's streams knows the
 * physical memory of a block, such as a network card (GPUDirect RDMA, GDRCopy), another process, or a graph that will
 * run again, the memory must stay where it is. A hold guarantees this. It concerns addresses alone: a freed block's
 * memory is reused as always, and accesses by cards or other processes are not waited for. So free the block when they
 * are done, and end the hold then or later: a late access then meets memory of this pool, and never an unmapped
 * address.
 *
 * A hold covers whole chunks (option `frame`, 2 to 16 MiB) with all blocks in them. The value "pool.held" counts their
 * bytes. A hold ends with its pool at the latest. */
typedef struct strata_pool_hold strata_pool_hold;

/* One chunk that a block lies in, and the block's part of it. A block may span many chunks. */
typedef struct strata_pool_part {
    CUdeviceptr address;      /* of the block's first byte in the chunk, in this process */
    size_t bytes;             /* of the block in the chunk */
    size_t offset;            /* of the block's first byte in the chunk */
    size_t handle_bytes;      /* size of the chunk: what an importer maps */
    int fd;                   /* after strata_pool_export with export=fd: a file descriptor; else -1 */
    unsigned char fabric[64]; /* with export=fabric: a CUmemFabricHandle; else zeros */
} strata_pool_part;

/* Holds a live block's chunks where they are. `resource` is the pool or a layer above it. A block may be held several
 * times. An empty block has no parts. On failure *out is NULL. Any thread. Errors: INVALID_VALUE (NULL; no pool in the
 * stack), FOREIGN_POINTER (memory that is not the pool's, such as a sample of the guard), SIZE_MISMATCH,
 * USE_AFTER_FREE, OUT_OF_HOST_MEMORY, SHUT_DOWN, FORKED. */
STRATA_API strata_status strata_pool_hold_begin(strata_resource *resource, const strata_block *block,
                                                strata_pool_hold **out);

/* As strata_pool_hold_begin, with a handle for other processes in each part (CUDA Driver API,
 * cuMemExportToShareableHandle). The receiver of all handles (descriptors travel through a socket, SCM_RIGHTS) imports
 * each with cuMemImportFromShareableHandle, maps handle_bytes of each at consecutive addresses, and finds the block at
 * the first part's offset; the following parts begin at offset 0. The receiver also sees other blocks in these chunks.
 * The caller closes the file descriptors, at any time. Errors: as above, UNSUPPORTED (a pool without an export type),
 * DRIVER. */
STRATA_API strata_status strata_pool_export(strata_resource *resource, const strata_block *block,
                                            strata_pool_hold **out);

/* The parts in the order of their addresses, valid until the hold ends. NULL and 0 for NULL. */
STRATA_API const strata_pool_part *strata_pool_hold_parts(const strata_pool_hold *hold, size_t *count);

/* Ends a hold, before the pool ends. NULL is ignored. Any thread. */
STRATA_API void strata_pool_hold_end(strata_pool_hold *hold);

#ifdef __cplusplus
}
#endif

#endif
