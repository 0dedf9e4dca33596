/* Checks of tensors that other libraries made. */
#include "runtime/dlpack.h"

#include "core/base/error.h"

enum { STRIDES_SINCE_MINOR = 2 };

/* An element type is exported as its first line here. */
static const struct {
    DLDataType type;
    strata_element element;
} types[] = {
    {{kDLFloat, 16, 1}, STRATA_ELEMENT_F16},
    {{kDLBfloat, 16, 1}, STRATA_ELEMENT_BF16},
    {{kDLFloat, 32, 1}, STRATA_ELEMENT_F32},
    {{kDLFloat, 64, 1}, STRATA_ELEMENT_F64},
    {{kDLFloat8_e4m3fn, 8, 1}, STRATA_ELEMENT_F8E4M3},
    {{kDLFloat8_e5m2, 8, 1}, STRATA_ELEMENT_F8E5M2},
    {{kDLInt, 8, 1}, STRATA_ELEMENT_I8},
    {{kDLInt, 16, 1}, STRATA_ELEMENT_I16},
    {{kDLInt, 32, 1}, STRATA_ELEMENT_I32},
    {{kDLInt, 64, 1}, STRATA_ELEMENT_I64},
    {{kDLUInt, 8, 1}, STRATA_ELEMENT_U8},
    {{kDLUInt, 16, 1}, STRATA_ELEMENT_U16},
    {{kDLUInt, 32, 1}, STRATA_ELEMENT_U32},
    {{kDLUInt, 64, 1}, STRATA_ELEMENT_U64},
    {{kDLComplex, 64, 1}, STRATA_ELEMENT_C64},
    {{kDLComplex, 128, 1}, STRATA_ELEMENT_C128},
    {{kDLBool, 8, 1}, STRATA_ELEMENT_U8},
};

DLDataType strata_dlpack_type(strata_element element)
{
    size_t i = 0;
    while (types[i].element != element)
        i++;
    return types[i].type;
}

strata_element strata_dlpack_element(DLDataType type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type.code == type.code && types[i].type.bits == type.bits && types[i].type.lanes == type.lanes)
            return types[i].element;
    return STRATA_ELEMENT_NONE;
}

strata_status strata_dlpack_check_version(const DLManagedTensorVersioned *tensor)
{
    return tensor->version.major == DLPACK_MAJOR_VERSION
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_UNSUPPORTED,
                             "the tensor is of DLPack %u.%u, but only %d.x is supported: call its deleter",
                             tensor->version.major, tensor->version.minor, DLPACK_MAJOR_VERSION);
}

static strata_status check_pointers(const DLManagedTensorVersioned *managed)
{
    const DLTensor *tensor = &managed->dl_tensor;
    if (tensor->ndim < 0 || (tensor->ndim > 0 && !tensor->shape))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the tensor has %d dimensions and %s shape", (int)tensor->ndim,
                           tensor->shape ? "a" : "no");
    if (tensor->ndim > 0 && !tensor->strides && managed->version.minor >= STRIDES_SINCE_MINOR)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the tensor is of DLPack %u.%u and has no strides, which are "
                           "required since 1.%d",
                           managed->version.major, managed->version.minor, STRIDES_SINCE_MINOR);
    return STRATA_SUCCESS;
}

strata_status strata_dlpack_count(const DLManagedTensorVersioned *managed, size_t *elements)
{
    const DLTensor *tensor = &managed->dl_tensor;
    bool overflows = false, empty = false;
    int64_t count = 1; /* signed, so that no stride of a compact tensor overflows */
    *elements = 0;
    const strata_status status = check_pointers(managed);
    if (status != STRATA_SUCCESS)
        return status;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "the tensor's dimension %d has %lld elements", (int)i,
                               (long long)tensor->shape[i]);
        empty = empty || tensor->shape[i] == 0;
        overflows = __builtin_mul_overflow(count, tensor->shape[i], &count) || overflows;
    }
    if (overflows && !empty)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the tensor has more elements than a stride can count");
    *elements = empty ? 0 : (size_t)count;
    return STRATA_SUCCESS;
}

/* The stride of a dimension that has more than one element. */
static int64_t stride_of(const DLTensor *tensor, int32_t dimension)
{
    if (tensor->strides)
        return tensor->strides[dimension];
    int64_t stride = 1;
    for (int32_t i = tensor->ndim - 1; i > dimension; i--)
        stride *= tensor->shape[i];
    return stride;
}

bool strata_dlpack_is_compact(const DLTensor *tensor)
{
    int64_t stride = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && stride_of(tensor, i) != stride)
            return false;
        stride *= tensor->shape[i];
    }
    return true;
}

/* Lowest and highest position of an element, from the first one. False: overflow. */
static bool find_positions(const DLTensor *tensor, int64_t *lowest, int64_t *highest)
{
    *lowest = *highest = 0;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t span;
        if (tensor->shape[i] == 1)
            continue;
        if (__builtin_mul_overflow(tensor->shape[i] - 1, stride_of(tensor, i), &span))
            return false;
        int64_t *end = span < 0 ? lowest : highest;
        if (__builtin_add_overflow(*end, span, end))
            return false;
    }
    return true;
}

static int64_t bits_of(const DLManagedTensorVersioned *managed)
{
    const DLDataType type = managed->dl_tensor.dtype;
    const bool padded = type.bits < 8 && (managed->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
    return (int64_t)(padded ? 8 : type.bits) * type.lanes;
}

strata_status strata_dlpack_find_range(const DLManagedTensorVersioned *managed, CUdeviceptr *address, size_t *bytes)
{
    const DLTensor *tensor = &managed->dl_tensor;
    const int64_t bits = bits_of(managed);
    int64_t lowest, highest, count, span;
    CUdeviceptr first;
    *address = (CUdeviceptr)(uintptr_t)tensor->data;
    bool valid = bits > 0 && find_positions(tensor, &lowest, &highest) &&
                 !__builtin_sub_overflow(highest, lowest, &count) && !__builtin_add_overflow(count, 1, &count) &&
                 !__builtin_mul_overflow(count, bits, &span) && !__builtin_mul_overflow(lowest, bits, &lowest) &&
                 !__builtin_add_overflow(*address, tensor->byte_offset, &first) && *address;
    if (!valid)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the tensor has no memory, or its bytes overflow");
    const CUdeviceptr below = ((CUdeviceptr)-lowest + 7) / 8;
    if (below > first)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the tensor begins before address 0");
    *address = first - below;
    *bytes = (size_t)span / 8 + (span % 8 != 0);
    return STRATA_SUCCESS;
}
