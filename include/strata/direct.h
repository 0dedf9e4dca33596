/* `direct`: every block is a cuMemAlloc of its own. deallocate waits on the host for the freeing stream and every
 * recorded use, then frees. No options. Alignment up to 256 bytes. */
#ifndef STRATA_DIRECT_H
#define STRATA_DIRECT_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_direct_options {
    uint32_t size;
} strata_direct_options;

/* Makes the layer. */
STRATA_API strata_status strata_direct_create(int ordinal, const strata_direct_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
