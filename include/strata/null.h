/* `null`: blocks without memory. Addresses are unique among live blocks and not accessible; blocks are tracked like
 * real ones. For measuring the cost of the layers above, and for trying budgets and logs at any size.
 *
 * deallocate does not wait: a free is complete when it returns. Text: `null`; no options. Alignments and blocks of up
 * to 256 GiB. */
#ifndef STRATA_NULL_H
#define STRATA_NULL_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_null_options {
    uint32_t size; /* sizeof(strata_null_options), or 0 */
} strata_null_options;

/* Makes a null resource for the device with this ordinal, to be built into a stack. NULL options: the defaults. Errors:
 * INVALID_VALUE, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_null_create(int ordinal, const strata_null_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
