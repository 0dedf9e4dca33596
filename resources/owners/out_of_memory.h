/* Error records of refused allocations. */
#ifndef STRATA_RESOURCES_OWNERS_OUT_OF_MEMORY_H
#define STRATA_RESOURCES_OWNERS_OUT_OF_MEMORY_H

#include "core/stack/stack.h"

/* Raises the driver's answer to `call`; CUDA_ERROR_OUT_OF_MEMORY with all that is known about memory. */
strata_status strata_fail_allocation(strata_resource *owner, const strata_request *request, CUresult result,
                                     const char *call);

/* As strata_fail_allocation, for an owner that reserves multiples of `step` bytes, limit included, and knows its
 * largest free extent; aligned blocks need extra room. */
strata_status strata_fail_allocation_in_steps(strata_resource *owner, const strata_request *request, CUresult result,
                                              const char *call, size_t step);

/* UNSUPPORTED if `request` needs more alignment than `most` bytes. */
strata_status strata_check_alignment(const strata_resource *owner, const strata_request *request, size_t most);

#endif
