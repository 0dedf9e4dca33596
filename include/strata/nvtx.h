/* `nvtx`: reports every block to a tool, such as compute-sanitizer, through NVTX's memory extension.
 *
 * A driver allocation of its own gets the block's tag as a name. A larger cuMemAlloc that the layer below cuts into
 * blocks becomes a heap, accessible only inside regions, and each block a named region. Blocks cut from other memory,
 * or by a guard, are not reported; without a tool, none. A region begins at the allocation and ends at the request to
 * free, in host time: the tool should make launches blocking, as compute-sanitizer does. */
#ifndef STRATA_NVTX_H
#define STRATA_NVTX_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_nvtx_options {
    uint32_t size;
    int no_names; /* 1: no names */
    int no_heaps; /* 1: no heaps and regions; whole allocations keep their names */
} strata_nvtx_options;

/* Makes the layer. Values: regions (now), heaps (now, accepted by a tool). Errors: INVALID_VALUE, UNSUPPORTED (built
 * without NVTX's headers). */
STRATA_API strata_status strata_nvtx_create(int ordinal, const strata_nvtx_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
