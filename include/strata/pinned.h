/* `pinned`: page-locked host memory, which the device accesses over the bus at the host's address (CUDA Driver API,
 * cuMemHostAlloc and "Unified Addressing").
 *
 * Blocks are cut from slabs of cuMemHostAlloc. A free waits for nothing: the memory is used again once the freeing
 * stream's work so far and every recorded use are complete, so that the host may write a block as soon as it has it.
 * The host's own accesses are unknown to Strata and must be over before the free. Slabs are kept until a trim, or
 * until the driver refuses another one. Alignment up to 2 MiB.
 *
 * With `single` every block is an allocation of its own, and its free waits on the host for the freeing stream and
 * every recorded use. Alignment up to 256 bytes. */
#ifndef STRATA_PINNED_H
#define STRATA_PINNED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* With unified addressing, which every supported device has, all page-locked memory is portable and mapped; the three
 * flags are for tools. */
typedef struct strata_pinned_options {
    uint32_t size;
    bool portable;       /* CU_MEMHOSTALLOC_PORTABLE */
    bool mapped;         /* CU_MEMHOSTALLOC_DEVICEMAP */
    bool write_combined; /* CU_MEMHOSTALLOC_WRITECOMBINED: faster over the bus, very slow for host reads */
    bool single;         /* a driver allocation for each block */
    int numa;            /* NUMA node of the memory, plus 1; 0: what the kernel chooses */
    uint64_t slab;       /* bytes, 4 MiB to 1 TiB; larger requests get a slab of their own size; 0: 64 MiB */
} strata_pinned_options;

/* Makes the layer. OUT_OF_MEMORY of an allocation means host memory. Errors: also INVALID_VALUE (slab; single with
 * slab; no such NUMA node), UNSUPPORTED (the kernel refuses to place memory). */
STRATA_API strata_status strata_pinned_create(int ordinal, const strata_pinned_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
