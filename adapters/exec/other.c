/* Memory that no stack gives: managed, pitched, arrays, physical memory. The driver makes it; it is counted, and
 * charged to the stack's budget. */
#include "adapters/exec/exec.h"

/* ---- managed and pitched memory ---- */

EXEC_EXPORT CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags)
{
    __typeof__(&cuMemAllocManaged) real = EXEC_REAL(cuMemAllocManaged);
    const exec_here here = exec_device_to_charge();
    exec_charge charge;
    CUresult result = exec_charge_begin(&here, EXEC_MANAGED, bytes, EXEC_CALLER, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real ? real(out, bytes, flags) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(&here))
        result = real(out, bytes, flags);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? *out : 0);
}

/* The pitch is the driver's to choose; rows are a multiple of 512 bytes on all devices so far. */
static size_t pitched_bytes(size_t width, size_t height)
{
    enum { ROW = 512 };
    size_t bytes;
    return __builtin_add_overflow(width, ROW - 1, &width) || __builtin_mul_overflow(width / ROW * ROW, height, &bytes)
               ? SIZE_MAX
               : bytes;
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                                unsigned element)
{
    __typeof__(&cuMemAllocPitch_v2) real = EXEC_REAL(cuMemAllocPitch_v2);
    const exec_here here = exec_device_to_charge();
    exec_charge charge;
    CUresult result = exec_charge_begin(&here, EXEC_PITCHED, pitched_bytes(width, height), EXEC_CALLER, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real ? real(out, pitch, width, height, element) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(&here))
        result = real(out, pitch, width, height, element);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? *out : 0);
}

/* ---- arrays ---- */

/* Of a channel. Formats with planes of fewer samples, and compressed ones, take less than this. */
static size_t channel_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
    case CU_AD_FORMAT_P210:
    case CU_AD_FORMAT_P216:
    case CU_AD_FORMAT_Y210:
    case CU_AD_FORMAT_Y216:
    case CU_AD_FORMAT_Y416:
    case CU_AD_FORMAT_Y444_PLANAR10:
    case CU_AD_FORMAT_YUV444_16bit_SemiPlanar:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 1;
    }
}

static size_t times(size_t bytes, size_t count)
{
    size_t product;
    return __builtin_mul_overflow(bytes, count ? count : 1, &product) ? SIZE_MAX : product;
}

static size_t plus(size_t bytes, size_t more)
{
    size_t sum;
    return __builtin_add_overflow(bytes, more, &sum) ? SIZE_MAX : sum;
}

/* Each level has half the extent of the one before, but as many layers and faces. */
static size_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned level)
{
    const bool is_layered = array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    const size_t element = times(channel_bytes(array->Format), array->NumChannels);
    const size_t plane = times(times(element, array->Width >> level), array->Height >> level);
    return times(plane, is_layered ? array->Depth : array->Depth >> level);
}

/* Without the driver's padding. Memory that is mapped later is charged as physical memory. */
static size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    enum { MOST_LEVELS = 32 };
    size_t bytes = 0;
    if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    for (unsigned level = 0; level < levels && level < MOST_LEVELS; level++)
        bytes = plus(bytes, level_bytes(array, level));
    return bytes;
}

/* The same of an array without layers and levels, which programs make the most of. */
static size_t plain_array_bytes(const CUDA_ARRAY_DESCRIPTOR *array)
{
    return times(times(times(channel_bytes(array->Format), array->NumChannels), array->Width), array->Height);
}

EXEC_EXPORT CUresult CUDAAPI cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *array)
{
    __typeof__(&cuArrayCreate_v2) real = EXEC_REAL(cuArrayCreate_v2);
    const exec_here here = exec_device_to_charge();
    exec_charge charge;
    CUresult result = exec_charge_begin(&here, EXEC_ARRAY, array ? plain_array_bytes(array) : 0, EXEC_CALLER, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real ? real(out, array) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(&here))
        result = real(out, array);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? (uintptr_t)*out : 0);
}

EXEC_EXPORT CUresult CUDAAPI cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    __typeof__(&cuArray3DCreate_v2) real = EXEC_REAL(cuArray3DCreate_v2);
    const exec_here here = exec_device_to_charge();
    exec_charge charge;
    CUresult result = exec_charge_begin(&here, EXEC_ARRAY, array ? array_bytes(array, 1) : 0, EXEC_CALLER, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real ? real(out, array) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(&here))
        result = real(out, array);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? (uintptr_t)*out : 0);
}

EXEC_EXPORT CUresult CUDAAPI cuArrayDestroy(CUarray array)
{
    exec_release release;
    exec_release_begin(EXEC_ARRAY, (uintptr_t)array, &release);
    return exec_release_end(&release, EXEC_CALL(cuArrayDestroy, array));
}

EXEC_EXPORT CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *array,
                                                    unsigned levels)
{
    __typeof__(&cuMipmappedArrayCreate) real = EXEC_REAL(cuMipmappedArrayCreate);
    const exec_here here = exec_device_to_charge();
    exec_charge charge;
    CUresult result =
        exec_charge_begin(&here, EXEC_ARRAY, array ? array_bytes(array, levels) : 0, EXEC_CALLER, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real ? real(out, array, levels) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(&here))
        result = real(out, array, levels);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? (uintptr_t)*out : 0);
}

EXEC_EXPORT CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    exec_release release;
    exec_release_begin(EXEC_ARRAY, (uintptr_t)array, &release);
    return exec_release_end(&release, EXEC_CALL(cuMipmappedArrayDestroy, array));
}

/* ---- physical memory ---- */

/* Memory of the host, and of no device, is not charged. */
static bool is_of_device(const CUmemAllocationProp *properties)
{
    return properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

/* The charge is the location's, whatever context is current. In place: a copy of what has just been written waits. */
static void go_to_location(exec_here *here, const CUmemAllocationProp *properties)
{
    if (!is_of_device(properties)) {
        *here = (exec_here){.refused = here->refused};
        return;
    }
    here->device = exec_device_of_memory(here, properties->location.id);
}

EXEC_EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                                         const CUmemAllocationProp *properties, unsigned long long flags)
{
    __typeof__(&cuMemCreate) real = EXEC_REAL(cuMemCreate);
    exec_here here = exec_device_to_charge();
    go_to_location(&here, properties);
    exec_charge charge;
    CUresult result = exec_charge_begin(&here, EXEC_PHYSICAL, bytes, EXEC_CALLER, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real ? real(out, bytes, properties, flags) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && exec_make_room(&here))
        result = real(out, bytes, properties, flags);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? *out : 0);
}

EXEC_EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    exec_release release;
    exec_release_begin(EXEC_PHYSICAL, handle, &release);
    return exec_release_end(&release, EXEC_CALL(cuMemRelease, handle));
}

/* Of the stack's memory only what has a handle to be given: NCCL takes what answers for memory that can be exported,
 * and fails if it cannot. */
EXEC_EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    const CUdeviceptr known = exec_address_with_a_handle((CUdeviceptr)(uintptr_t)address);
    void *asked = (void *)(uintptr_t)known; /* NOLINT: of the device */
    const CUresult result = EXEC_CALL(cuMemRetainAllocationHandle, out, asked);
    if (result == CUDA_SUCCESS)
        exec_passed_hold(*out);
    return result;
}
