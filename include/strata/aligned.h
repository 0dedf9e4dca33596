/* `aligned`: addresses aligned to more than the owner's 256 bytes. The layer requests more from the layer below and
 * shows its user an aligned part; it also serves requests that ask for a larger alignment themselves. Identity, history
 * and frees are unchanged. */
#ifndef STRATA_ALIGNED_H
#define STRATA_ALIGNED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_aligned_options {
    uint32_t size;
    uint64_t alignment; /* a power of two; up to 256: only what requests ask for */
    uint64_t threshold; /* smallest block to align, bytes; 0: all */
} strata_aligned_options;

/* Makes the layer. An aligned block takes alignment - 256 more bytes from the layer below; charge and usage include
 * them. Errors: INVALID_VALUE (not a power of two). */
STRATA_API strata_status strata_aligned_create(const strata_aligned_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
