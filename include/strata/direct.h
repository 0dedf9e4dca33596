/* `direct`: every block is a cuMemAlloc of its own. Slow and simple: compute-sanitizer sees each block, and other
 * layers are compared with it.
 *
 * deallocate waits on the host for the freeing stream and every recorded use, then frees; code written for a
 * stream-ordered stack works unchanged. Text: `direct`; no options. Alignment up to 256 bytes. */
#ifndef STRATA_DIRECT_H
#define STRATA_DIRECT_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_direct_options {
    uint32_t size; /* sizeof(strata_direct_options), or 0 */
} strata_direct_options;

/* Makes a direct resource for the device with this ordinal, to be built into a stack. NULL options: the defaults.
 * Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_direct_create(int ordinal, const strata_direct_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
