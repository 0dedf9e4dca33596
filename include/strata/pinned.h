/* `pinned`: page-locked host memory, which the device accesses over the bus at the host's address (CUDA Driver API,
 * cuMemHostAlloc and "Unified Addressing"). Every block is an allocation of its own. deallocate waits on the host for
 * the freeing stream and every recorded use, then frees. The host's own accesses are unknown to Strata and must be
 * over. Alignment up to 256 bytes.  */
#ifndef STRATA_PINNED_H
#define STRATA_PINNED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* With unified addressing, which every supported device has, all page-locked memory is portable and mapped; the flags
 * are for tools. */
typedef struct strata_pinned_options {
    uint32_t size;
    bool portable;       /* CU_MEMHOSTALLOC_PORTABLE */
    bool mapped;         /* CU_MEMHOSTALLOC_DEVICEMAP */
    bool write_combined; /* CU_MEMHOSTALLOC_WRITECOMBINED: faster over the bus, very slow for host reads */
} strata_pinned_options;

/* Makes the layer. OUT_OF_MEMORY of an allocation means host memory. */
STRATA_API strata_status strata_pinned_create(int ordinal, const strata_pinned_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
