/* Checks of DLPack's tensors, and what they mean. */
#ifndef STRATA_RUNTIME_DLPACK_H
#define STRATA_RUNTIME_DLPACK_H

#include "driver/driver.h"

#include <strata/dlpack_types.h>
#include <strata/ref.h>

/* Errors: UNSUPPORTED (another major version). */
strata_status strata_dlpack_check_version(const DLManagedTensorVersioned *tensor);

/* Checks the shape and strides of a tensor whose version is checked. *elements: their number. Errors: INVALID_VALUE. */
strata_status strata_dlpack_count(const DLManagedTensorVersioned *tensor, size_t *elements);

/* Whether the elements lie one behind the other, the last dimension fastest. The tensor is counted and has elements. */
bool strata_dlpack_is_compact(const DLTensor *tensor);

/* The bytes from the lowest to the highest element of a counted tensor that has elements. Errors: INVALID_VALUE. */
strata_status strata_dlpack_find_range(const DLManagedTensorVersioned *tensor, CUdeviceptr *address, size_t *bytes);

/* Converts types of elements. NONE: references have no such type. */
DLDataType strata_dlpack_type(strata_element element);
strata_element strata_dlpack_element(DLDataType type);

/* Whether CUDA kernels can use memory of a device type. */
static inline bool strata_dlpack_is_cuda(int type)
{
    return type == kDLCUDA || type == kDLCUDAHost || type == kDLCUDAManaged;
}

#endif
