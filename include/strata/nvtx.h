/* `nvtx`: reports every block to a tool, such as compute-sanitizer, through NVTX's memory extension. Text:
 *
 * - nvtx(names=on|off, heaps=on|off)
 *
 * A block that is a driver allocation of its own gets its tag as a name. Where the layer below cuts blocks from a
 * larger cuMemAlloc, that allocation becomes a heap, accessible only inside regions, and each block a named region: the
 * tool then checks the bounds of blocks that the driver does not know. Blocks cut from other memory, or by a guard, are
 * not reported. Without a tool nothing is reported.
 *
 * A region begins at the allocation and ends at the request to free, in host time: the tool should make launches
 * blocking, as compute-sanitizer does. */
#ifndef STRATA_NVTX_H
#define STRATA_NVTX_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero is the default. */
typedef struct strata_nvtx_options {
    uint32_t size; /* sizeof(strata_nvtx_options), or 0 */
    int no_names;  /* 1: no names */
    int no_heaps;  /* 1: no heaps and regions; blocks that are no part of an allocation keep their names */
} strata_nvtx_options;

/* Makes the layer for the device with this ordinal, to be built into a stack. NULL options: the defaults.
 *
 * Values: regions (now), heaps (now, accepted by a tool).
 *
 * Errors: INVALID_VALUE, UNSUPPORTED (built without NVTX's headers), OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_nvtx_create(int ordinal, const strata_nvtx_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
