/* `binning`: blocks of a few sizes. A request is served by the smallest bin that is large enough, which works as
 * `fixed` does (<strata/fixed.h>); what is larger than the largest, or asks for more than 256 bytes of alignment, goes
 * straight to the layer below. Texts:
 *
 * - binning(min=SIZE, max=SIZE, chunk=SIZE): a bin for each power of two between the two, both included
 * - binning(bins=SIZE;SIZE;..., chunk=SIZE) */
#ifndef STRATA_BINNING_H
#define STRATA_BINNING_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_binning_options {
    uint32_t size;        /* sizeof(strata_binning_options), or 0 */
    uint64_t min, max;    /* powers of two, at least 256; 0: 256 KiB and 4 MiB */
    const uint64_t *bins; /* instead of these: sizes in ascending order, each rounded up to a multiple of 256; read
                             during the call */
    size_t bin_count;     /* how many; at most 64 */
    uint64_t chunk; /* bytes that a bin takes from the layer below at a time, or those of a block, if that is more; 0:
                       eight blocks, or 2 MiB if that is more */
} strata_binning_options;

/* Makes a layer of bins, to be built into a stack. NULL options are the defaults.
 * Errors: INVALID_VALUE (bounds or bins that cannot be, both of them), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_binning_create(const strata_binning_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
