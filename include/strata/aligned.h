/* `aligned`: addresses at multiples of more than the owner of the memory gives, which is 256 bytes.
 *
 * It asks the layer below for more and shows its user an aligned part. Requests that ask for a larger alignment by
 * themselves are served too, whatever the layer below gives. A block's identity, history and frees are as without it.
 * Text:
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
    uint64_t alignment; /* bytes, a power of two; up to 256, 0 among them: only what requests ask for */
    uint64_t threshold; /* blocks of at least so many bytes are aligned so; 0: all */
} strata_aligned_options;

/* Makes an aligning layer, to be built into a stack. NULL options are the defaults. An aligned block takes
 * alignment - 256 bytes more from the layer below; charge and usage say so.
 * Errors: INVALID_VALUE (the alignment is no power of two), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_aligned_create(const strata_aligned_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
