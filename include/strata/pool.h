/* `pool`: memory in large pieces, handed out without a driver call.
 *
 * A pool stands last in a stack, and takes memory from the device: through its virtual memory management, so that what
 * lies free can be mapped where it is needed, or through cuMemAlloc on a device without. Or it stands over another
 * layer, "pool, budget(limit=8GiB), direct", and takes its memory from that one in large blocks: what layers below
 * count and limit is what the pool reserves, those above see its blocks. No lock of the pool's is held while a layer
 * below is asked.
 *
 * Text:
 *
 * - pool(initial_size=SIZE, max_size=SIZE, slack=THOUSANDTHS, frame=SIZE, cache=SIZE, release_threshold=SIZE,
 *   release_all=on|off, decay=DURATION, opportunistic=default|on|off, follow_event_dependencies=default|on|off,
 *   internal_dependencies=default|on|off, deterministic=on|off, export=none|fd|fabric, peers=ORDINAL;ORDINAL;...|all)
 *
 * initial_size, max_size and release_threshold may be shares of the device's memory, as in max_size=50%, and decay=0 is
 * never.
 *
 * A freed block is free memory at once: for the stream on which it was freed without more ado, for others after a wait
 * that the pool puts in where it is needed. Whatever was noted of the block's uses goes with the memory. */
#ifndef STRATA_POOL_H
#define STRATA_POOL_H

#include <strata/async.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero is the default. */
typedef struct strata_pool_options {
    uint32_t size;         /* sizeof(strata_pool_options), or 0 */
    uint64_t initial_size; /* bytes reserved with the first request, which is refused where they cannot be had */
    uint64_t max_size;     /* bytes that may be reserved; 0: no limit but the device's */
    uint64_t slack; /* thousandths of what was live at most, up to 1,000,000, that may be reserved beyond it before
                       memory that lies free elsewhere is moved instead; 0: 44 at first, and more where moving
                       takes much of the time, or streams keep taking each other's memory (docs/pool.md). Where memory
                       cannot be moved, over another layer or without virtual memory management: before what is free as
                       a whole is given back; 0: 500 */
    uint64_t frame; /* bytes of the largest piece of physical memory, rounded up to what the device maps in; 0: 16
                       MiB. Smaller ones can be moved more often, and cost more each time. Where memory cannot be
                       moved: of the largest block that is had for several of the pool's own, in multiples of 2 MiB; 0:
                       64 MiB */
    uint64_t cache; /* bytes that a thread keeps of a stream for itself; 0: 4 MiB */
    uint64_t release_threshold; /* bytes that stay reserved when the program waits for all frees
                                   (strata_runtime_reap_pending): what is free beyond them is given back to the device
                                   then, besides at a trim and by `decay`; 0: nothing is */
    bool release_all;           /* give back everything that is free, instead of a threshold */
    uint64_t decay; /* nanoseconds. Of the memory that lay unused for so long half is given back, of what then lies
                       unused for so long half again, and so on, down to release_threshold. 0: never. */
    /* What a stream gets of the memory that others have freed, by the names that the driver's pools have for it. All on
     * by default. */
    strata_switch follow_event_dependencies; /* what it has waited for already */
    strata_switch opportunistic;             /* what is found to be complete; not on in a deterministic pool */
    strata_switch internal_dependencies;     /* what is not, behind a wait that the pool puts in */
    bool deterministic; /* the same calls in the same order, made by one thread, give the same addresses, counted from
                           the pool's first one: nothing depends on how far the device is or on the clock, so that
                           there can be no decay */
    strata_export_type export_type; /* handle type of the physical memory, for strata_pool_export */
    /* Other devices that read and write the memory: in kernels, fills and copies on streams of theirs. Memory that the
     * pool maps itself is mapped for its own device alone without this, whatever cuCtxEnablePeerAccess says (CUDA
     * Driver API, cuMemSetAccess). */
    const int *peers;  /* their ordinals, read during the call; that of the pool's own device is ignored */
    size_t peer_count; /* of them; 0: none */
    bool all_peers;    /* instead: every device that can (cuDeviceCanAccessPeer) */
} strata_pool_options;

/* Makes a pool for the device `ordinal`, to be built into a stack, last or over other layers. NULL options are the
 * defaults. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER.
 *
 * Where its memory comes from is settled when the stack is built, which answers for the pool, besides what it answers
 * for any layer: UNSUPPORTED (an export type, peers or decay over another layer, or without virtual memory management,
 * and handles that the device does not make, or a peer that cannot access its memory), INVALID_VALUE (a peer that there
 * is not), DRIVER, OUT_OF_MEMORY (of addresses). */
STRATA_API strata_status strata_pool_create(int ordinal, const strata_pool_options *options, strata_resource **out);

/* ---- memory that others know ----
 *
 * The pool maps physical memory elsewhere when that saves memory, and gives some back. Where somebody beside the
 * program's own streams knows a block's physical memory, a network card (GPUDirect RDMA, GDRCopy), another process, or
 * a graph that will run again, it has to stay where it is. A hold says so. It is about places alone: when the block is
 * freed its memory goes to other blocks as ever, and nobody else waits for what a card or another process does with
 * it. So free the block when they are done, and end the hold then or later: what a hold adds is that a late access
 * meets memory of this pool, and never an address without memory.
 *
 * A hold is of whole pieces of physical memory (option `frame`, 2 to 16 MiB), with all that lies in them beside the
 * block. The value "pool.held" counts their bytes. A hold ends with its pool at the latest. */
typedef struct strata_pool_hold strata_pool_hold;

/* One piece of physical memory that a block lies in, and what of it is the block's. A block may lie in many. */
typedef struct strata_pool_part {
    CUdeviceptr address;      /* of the block's first byte in it, in this process */
    size_t bytes;             /* of the block in it */
    size_t offset;            /* where these begin in it */
    size_t handle_bytes;      /* all of it: an importer maps as much */
    int fd;                   /* after strata_pool_export with export=fd: a file descriptor, else -1 */
    unsigned char fabric[64]; /* with export=fabric: a CUmemFabricHandle, else zeros */
} strata_pool_part;

/* Holds a live block's physical memory where it is. `resource`: a stack's outermost resource, or any above the pool, or
 * the pool. A block may be held several times. An empty block has no parts. On failure *out is NULL. Any thread.
 * Errors: INVALID_VALUE (NULL; no pool in the stack), FOREIGN_POINTER (memory that is not the pool's, such as a sample
 * of the guard), SIZE_MISMATCH (not the block's size), USE_AFTER_FREE, OUT_OF_HOST_MEMORY, SHUT_DOWN, FORKED. */
STRATA_API strata_status strata_pool_hold_begin(strata_resource *resource, const strata_block *block,
                                                strata_pool_hold **out);

/* The same, with a handle for other processes in each part (CUDA Driver API, cuMemExportToShareableHandle). Whoever
 * gets them all (a descriptor through a socket, SCM_RIGHTS) imports each with cuMemImportFromShareableHandle, maps
 * handle_bytes of it, one behind the other, and finds the block at the first one's offset: the last byte of a part is
 * followed by the first byte of the next one, which begins at offset 0. Other blocks' bytes in these pieces are seen,
 * too. File descriptors are the caller's, who closes them, at any time: what was imported stays. Errors: as above,
 * UNSUPPORTED (a pool without an export type), DRIVER. */
STRATA_API strata_status strata_pool_export(strata_resource *resource, const strata_block *block,
                                            strata_pool_hold **out);

/* The parts, in the order of their addresses, and how many there are; good until the hold ends. NULL and 0 for NULL. */
STRATA_API const strata_pool_part *strata_pool_hold_parts(const strata_pool_hold *hold, size_t *count);

/* Ends a hold; not after the pool has ended. NULL is ignored. Any thread. */
STRATA_API void strata_pool_hold_end(strata_pool_hold *hold);

#ifdef __cplusplus
}
#endif

#endif
