/* `pinned`: page-locked host memory, which the device reaches over the bus, at the address that the host has for it
 * (CUDA Driver API, cuMemHostAlloc and "Unified Addressing"). Every block is an allocation of its own.
 *
 * deallocate waits on the host for the freeing stream and for every noted use, then frees, as `direct` does. Work that
 * the host does on a block is not known to Strata: it must be over. Alignment up to 256 bytes. Text:
 *
 * - pinned(portable=on|off, mapped=on|off, write_combined=on|off) */
#ifndef STRATA_PINNED_H
#define STRATA_PINNED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero is the default. With unified addressing, which every device that Strata runs on has, all page-locked memory
 * is portable and mapped anyway; the flags are passed on for tools that look at them. */
typedef struct strata_pinned_options {
    uint32_t size;       /* sizeof(strata_pinned_options), or 0 */
    bool portable;       /* CU_MEMHOSTALLOC_PORTABLE */
    bool mapped;         /* CU_MEMHOSTALLOC_DEVICEMAP */
    bool write_combined; /* CU_MEMHOSTALLOC_WRITECOMBINED: faster over the bus, very slow for the host to read */
} strata_pinned_options;

/* Makes a pinned resource for the device `ordinal`, to be built into a stack. NULL options are the defaults. Its bytes
 * are the host's: an allocation that fails says OUT_OF_MEMORY and means those.
 * Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_pinned_create(int ordinal, const strata_pinned_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
