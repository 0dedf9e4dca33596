/* `null`: blocks without memory. Each has an address that is different from those of all other live blocks and that
 * nothing can be accessed at, and is tracked like a real one. For measuring what the layers above cost, and for trying
 * out budgets and logs at any size.
 *
 * deallocate does not wait: a free has finished when it returns. Text: `null`; no options. Every alignment up to 256
 * GiB; blocks of up to 256 GiB. */
#ifndef STRATA_NULL_H
#define STRATA_NULL_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_null_options {
    uint32_t size; /* sizeof(strata_null_options), or 0 */
} strata_null_options;

/* Makes a null resource for the device `ordinal`, to be built into a stack. NULL options are the defaults.
 * Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_null_create(int ordinal, const strata_null_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
