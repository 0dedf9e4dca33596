/* What questions about mapped memory need: properties, handles, reservations and maps that are as they should be. */
#ifndef STRATA_TESTS_ANSWERS_VMM_H
#define STRATA_TESTS_ANSWERS_VMM_H

#include "ask.h"

enum { PAGE = 2 << 20 }; /* the granularity of mapped memory */

/* Pinned memory of a device without a shareable handle. */
CUmemAllocationProp vmm_properties(int device);
CUmemGenericAllocationHandle vmm_create(size_t bytes);
CUdeviceptr vmm_reserve(size_t bytes);
CUresult vmm_allow(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags);

/* Reserves, creates, maps and, unless flags are none, sets the access of device 0; the handle is released. */
CUdeviceptr vmm_map(size_t bytes, CUmemAccess_flags flags);

/* Asks one case in a child of this process, which must not have called the driver yet, so that what poisons a context
 * costs this case alone. The child is killed when it takes too long. */
void in_child(void (*ask_case)(const void *data), const void *data, const char *name);

#endif
