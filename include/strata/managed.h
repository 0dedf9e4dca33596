/* `managed`: memory that the host and the device reach at the same address, and that moves between them as it is
 * touched (CUDA Driver API, cuMemAllocManaged). Every block is an allocation of its own.
 *
 * deallocate waits on the host for the freeing stream and for every noted use, then frees, as `direct` does. Work that
 * the host does on a block is not known to Strata: it must be over. Alignment up to 256 bytes. Text:
 *
 * - managed(attach=global|host, preferred_location=none|device|host, read_mostly=on|off, oversubscribe=on|off) */
#ifndef STRATA_MANAGED_H
#define STRATA_MANAGED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_managed_attach {
    STRATA_MANAGED_ATTACH_GLOBAL = 0, /* any stream of any device may use a block: CU_MEM_ATTACH_GLOBAL */
    STRATA_MANAGED_ATTACH_HOST,       /* the host alone, until a stream is attached: CU_MEM_ATTACH_HOST */
} strata_managed_attach;

typedef enum strata_managed_location {
    STRATA_MANAGED_LOCATION_NONE = 0,
    STRATA_MANAGED_LOCATION_DEVICE, /* the resource's own */
    STRATA_MANAGED_LOCATION_HOST,
} strata_managed_location;

/* All zero is the default. The two kinds of advice are given for each block when it is allocated. */
typedef struct strata_managed_options {
    uint32_t size; /* sizeof(strata_managed_options), or 0 */
    strata_managed_attach attach;
    strata_managed_location preferred_location; /* CU_MEM_ADVISE_SET_PREFERRED_LOCATION */
    bool read_mostly;                           /* CU_MEM_ADVISE_SET_READ_MOSTLY */
    bool oversubscribe;                         /* blocks may have more bytes than are free on the device */
} strata_managed_options;

/* Makes a managed resource for the device `ordinal`, to be built into a stack. NULL options are the defaults.
 *
 * Without `oversubscribe`, an allocation answers OUT_OF_MEMORY if its bytes are more than the device has free, or if
 * the live blocks of this resource with it are more than was free while it had none: so they all fit onto the device at
 * the same time, unless others take memory meanwhile.
 *
 * Errors: INVALID_VALUE, UNSUPPORTED (the device cannot reach managed memory while the host does, or the driver takes
 * no such advice), OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_managed_create(int ordinal, const strata_managed_options *options,
                                               strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
