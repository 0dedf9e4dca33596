/* `binning`: blocks of a few sizes (bins): each power of two from min to max, or a list. The smallest sufficient bin
 * serves a request, as `fixed` does (<strata/fixed.h>). Requests above the largest bin, or for more than 256 bytes of
 * alignment, go to the layer below. */
#ifndef STRATA_BINNING_H
#define STRATA_BINNING_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_binning_options {
    uint32_t size;
    uint64_t min, max;    /* powers of two, at least 256; 0: 256 KiB and 4 MiB */
    const uint64_t *bins; /* instead: ascending sizes, rounded up to multiples of 256; read during the call */
    size_t bin_count;     /* at most 64 */
    uint64_t chunk;       /* bytes taken from below at a time, at least one block; 0: eight blocks, at least 2 MiB */
} strata_binning_options;

/* Makes the layer. Errors: INVALID_VALUE (invalid bounds or bins, or both given). */
STRATA_API strata_status strata_binning_create(const strata_binning_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
