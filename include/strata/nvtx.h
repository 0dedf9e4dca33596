/* `nvtx`: tells a tool, such as compute-sanitizer, of every block, through NVTX's memory extension. Text:
 *
 * - nvtx(names=on|off, heaps=on|off)
 *
 * A block that is an allocation of the driver's by itself has the tag's name. Where the layer below cuts it out of a
 * larger allocation of cuMemAlloc, that is a heap of its own, which nobody may touch outside of regions, and the block
 * a region with that name: so a tool sees the bounds of blocks that the driver never heard of. Blocks that are cut out
 * of other memory, or by a guard, are not told of. Without a tool, nothing is told.
 *
 * A region begins when the block is allocated and ends when its free is asked for, both at the time of the host: the
 * tool should make launches blocking, as compute-sanitizer does. */
#ifndef STRATA_NVTX_H
#define STRATA_NVTX_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero is the default. */
typedef struct strata_nvtx_options {
    uint32_t size; /* sizeof(strata_nvtx_options), or 0 */
    int no_names;  /* 1: regions have no names */
    int no_heaps;  /* 1: no block is a region of a heap; those have names that are not parts of anything */
} strata_nvtx_options;

/* Makes such a layer for the device `ordinal`, to be built into a stack. NULL options are the defaults.
 *
 * Values: regions (now), heaps (now; those that a tool takes).
 *
 * Errors: INVALID_VALUE, UNSUPPORTED (Strata was built without NVTX's headers), OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND,
 * DRIVER. */
STRATA_API strata_status strata_nvtx_create(int ordinal, const strata_nvtx_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
