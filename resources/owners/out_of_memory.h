/* The error record of a refused allocation, the same for every owner of memory. */
#ifndef STRATA_RESOURCES_OWNERS_OUT_OF_MEMORY_H
#define STRATA_RESOURCES_OWNERS_OUT_OF_MEMORY_H

#include "core/stack/stack.h"

/* Raises what the driver answered to `call` for `request`: for CUDA_ERROR_OUT_OF_MEMORY with everything that is known
 * about where the memory is. */
strata_status strata_fail_allocation(strata_resource *owner, const strata_request *request, CUresult result,
                                     const char *call);

/* The same for an owner that takes its memory in multiples of `step` bytes, its limit too, and knows its largest free
 * piece; where it aligns blocks it needs room for that. */
strata_status strata_fail_allocation_in_steps(strata_resource *owner, const strata_request *request, CUresult result,
                                              const char *call, size_t step);

/* UNSUPPORTED if `request` asks for more alignment than `most` bytes, which is what `owner` gives by itself. */
strata_status strata_check_alignment(const strata_resource *owner, const strata_request *request, size_t most);

#endif
