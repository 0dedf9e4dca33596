/* `managed`: memory that host and device access at one address and that migrates between them (CUDA Driver API,
 * cuMemAllocManaged). Every block is an allocation of its own.
 *
 * deallocate waits on the host for the freeing stream and every recorded use, then frees, as `direct` does. Strata does
 * not know the host's own accesses: they must be over. Alignment up to 256 bytes. Text:
 *
 * - managed(attach=global|host, preferred_location=none|device|host, read_mostly=on|off, oversubscribe=on|off) */
#ifndef STRATA_MANAGED_H
#define STRATA_MANAGED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_managed_attach {
    STRATA_MANAGED_ATTACH_GLOBAL = 0, /* any stream of any device: CU_MEM_ATTACH_GLOBAL */
    STRATA_MANAGED_ATTACH_HOST,       /* only the host, until a stream is attached: CU_MEM_ATTACH_HOST */
} strata_managed_attach;

typedef enum strata_managed_location {
    STRATA_MANAGED_LOCATION_NONE = 0,
    STRATA_MANAGED_LOCATION_DEVICE, /* the resource's device */
    STRATA_MANAGED_LOCATION_HOST,
} strata_managed_location;

/* Advice is given for each block at its allocation. */
typedef struct strata_managed_options {
    uint32_t size; /* sizeof(strata_managed_options), or 0 */
    strata_managed_attach attach;
    strata_managed_location preferred_location; /* CU_MEM_ADVISE_SET_PREFERRED_LOCATION */
    bool read_mostly;                           /* CU_MEM_ADVISE_SET_READ_MOSTLY */
    bool oversubscribe;                         /* blocks may exceed the device's free memory */
} strata_managed_options;

/* Makes a managed resource for the device with this ordinal, to be built into a stack. NULL options: the defaults.
 *
 * Without `oversubscribe`, an allocation answers OUT_OF_MEMORY if it exceeds the device's free memory, or if the live
 * blocks with it exceed what was free when there were none: so all blocks fit onto the device together, unless others
 * take memory meanwhile.
 *
 * Errors: INVALID_VALUE, UNSUPPORTED (no concurrent access by host and device, or no such advice), OUT_OF_HOST_MEMORY,
 * DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_managed_create(int ordinal, const strata_managed_options *options,
                                               strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
