/* `binning`: blocks of a few sizes. The smallest sufficient bin serves a request, as `fixed` does (<strata/fixed.h>).
 * Requests above the largest bin, or for more than 256 bytes of alignment, go to the layer below. Texts:
 *
 * - binning(min=SIZE, max=SIZE, chunk=SIZE): a bin for each power of two from min to max
 * - binning(bins=SIZE;SIZE;..., chunk=SIZE) */
#ifndef STRATA_BINNING_H
#define STRATA_BINNING_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_binning_options {
    uint32_t size;     /* sizeof(strata_binning_options), or 0 */
    uint64_t min, max; /* powers of two, at least 256; 0: 256 KiB and 4 MiB */
    const uint64_t
        *bins; /* instead: sizes in ascending order, each rounded up to a multiple of 256; read during the call */
    size_t bin_count; /* at most 64 */
    uint64_t chunk;   /* bytes that a bin takes from the layer below at a time, at least one block; 0: eight blocks, at
                         least 2 MiB */
} strata_binning_options;

/* Makes the layer, to be built into a stack. NULL options: the defaults. Errors: INVALID_VALUE (invalid bounds or bins,
 * or both given), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_binning_create(const strata_binning_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
