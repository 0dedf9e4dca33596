/* Correct properties, handles, reservations and mappings for questions about mapped memory. */
#ifndef STRATA_TESTS_ANSWERS_VMM_H
#define STRATA_TESTS_ANSWERS_VMM_H

#include "ask.h"

enum { PAGE = 2 << 20 }; /* the granularity of mapped memory */

/* Pinned memory of a device without a shareable handle. */
CUmemAllocationProp vmm_properties(int device);
CUmemGenericAllocationHandle vmm_create(size_t bytes);
CUdeviceptr vmm_reserve(size_t bytes);
CUresult vmm_allow(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags);

/* Reserves, creates, maps and, unless `flags` are none, sets the access of device 0. The handle is released. */
CUdeviceptr vmm_map(size_t bytes, CUmemAccess_flags flags);

/* Asks one case in a child process, so that a poisoned context affects this case alone. This process must not have
 * called the driver yet. A child that takes too long is killed. */
void in_child(void (*ask_case)(const void *data), const void *data, const char *name);

#endif
