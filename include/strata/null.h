/* `null`: blocks without memory, to measure the layers above. Addresses are unique among live blocks and not
 * accessible; blocks are tracked like real ones. A free is complete when it returns. No options. Alignments and blocks
 * of up to 256 GiB. */
#ifndef STRATA_NULL_H
#define STRATA_NULL_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_null_options {
    uint32_t size;
} strata_null_options;

/* Makes the layer. */
STRATA_API strata_status strata_null_create(int ordinal, const strata_null_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
