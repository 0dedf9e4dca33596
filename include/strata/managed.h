/* `managed`: memory that host and device access at one address and that migrates between them (CUDA Driver API,
 * cuMemAllocManaged). Every block is an allocation of its own. deallocate waits on the host for the freeing stream and
 * every recorded use, then frees. The host's own accesses are unknown to Strata and must be over. Alignment up to 256
 * bytes. */
#ifndef STRATA_MANAGED_H
#define STRATA_MANAGED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_managed_attach {
    STRATA_MANAGED_ATTACH_GLOBAL = 0, /* CU_MEM_ATTACH_GLOBAL: any stream of any device */
    STRATA_MANAGED_ATTACH_HOST,       /* CU_MEM_ATTACH_HOST: the host, until a stream is attached */
} strata_managed_attach;

typedef enum strata_managed_location {
    STRATA_MANAGED_LOCATION_NONE = 0,
    STRATA_MANAGED_LOCATION_DEVICE, /* the resource's device */
    STRATA_MANAGED_LOCATION_HOST,
} strata_managed_location;

/* Advice is given for each block. */
typedef struct strata_managed_options {
    uint32_t size;
    strata_managed_attach attach;
    strata_managed_location preferred_location; /* CU_MEM_ADVISE_SET_PREFERRED_LOCATION */
    bool read_mostly;                           /* CU_MEM_ADVISE_SET_READ_MOSTLY */
    bool oversubscribe;                         /* blocks may exceed the device's free memory */
} strata_managed_options;

/* Makes the layer. Without `oversubscribe`, an allocation answers OUT_OF_MEMORY if it exceeds the device's free memory,
 * or if the live blocks with it exceed what was free when there were none: all blocks fit onto the device together,
 * unless others take memory meanwhile. Errors: INVALID_VALUE, UNSUPPORTED (no concurrent access by host and device, or
 * no such advice). */
STRATA_API strata_status strata_managed_create(int ordinal, const strata_managed_options *options,
                                               strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
