/* `aligned`: addresses aligned to more than the 256 bytes that the owner of the memory gives.
 *
 * The layer requests more from the layer below and shows its user an aligned part. It also serves requests that ask for
 * a larger alignment themselves. Identity, history and frees of a block are unchanged. Text:
 *
 * - aligned(alignment=SIZE, threshold=SIZE) */
#ifndef STRATA_ALIGNED_H
#define STRATA_ALIGNED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_aligned_options {
    uint32_t size;      /* sizeof(strata_aligned_options), or 0 */
    uint64_t alignment; /* bytes, a power of two; up to 256: only what requests ask for */
    uint64_t threshold; /* blocks of at least this many bytes are aligned; 0: all */
} strata_aligned_options;

/* Makes the layer, to be built into a stack. NULL options: the defaults. An aligned block takes alignment - 256 more
 * bytes from the layer below; charge and usage include them. Errors: INVALID_VALUE (not a power of two),
 * OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_aligned_create(const strata_aligned_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
