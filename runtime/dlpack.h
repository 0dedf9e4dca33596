/* What DLPack's tensors say, checked. */
#ifndef STRATA_RUNTIME_DLPACK_H
#define STRATA_RUNTIME_DLPACK_H

#include "driver/driver.h"

#include <strata/dlpack_types.h>
#include <strata/ref.h>

/* Errors: UNSUPPORTED (another major version). */
strata_status strata_dlpack_check_version(const DLManagedTensorVersioned *tensor);

/* Of a checked version: whether shape and strides are there and valid. *elements: their number. Errors: INVALID_VALUE.
 */
strata_status strata_dlpack_count(const DLManagedTensorVersioned *tensor, size_t *elements);

/* Of a counted tensor with elements: whether they lie one behind the other, the last dimension fastest. */
bool strata_dlpack_is_compact(const DLTensor *tensor);

/* Of a counted tensor with elements: all bytes between its lowest and its highest one. Errors: INVALID_VALUE. */
strata_status strata_dlpack_find_range(const DLManagedTensorVersioned *tensor, CUdeviceptr *address, size_t *bytes);

/* The types of elements. NONE: no reference has such. */
DLDataType strata_dlpack_type(strata_element element);
strata_element strata_dlpack_element(DLDataType type);

/* Whether a device type is of memory that CUDA kernels can use. */
static inline bool strata_dlpack_is_cuda(int type)
{
    return type == kDLCUDA || type == kDLCUDAHost || type == kDLCUDAManaged;
}

#endif
