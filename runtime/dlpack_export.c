/* References as DLPack tensors. */
#include <strata/dlpack.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "runtime/dlpack.h"
#include "runtime/references.h"

enum { MOST_DIMENSIONS = 32 };

typedef struct exported_tensor {
    DLManagedTensorVersioned managed; /* first: the consumer's address of it is this struct's */
    strata_ref *ref;
    int64_t extents[]; /* shape, then strides */
} exported_tensor;

/* ---- the tensor ---- */

/* A forked child cannot count, and the thread that holds the allocator may be missing. */
static void delete_tensor(DLManagedTensorVersioned *managed)
{
    exported_tensor *tensor = (exported_tensor *)managed;
    if (!managed || strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return;
    strata_ref *ref = tensor->ref;
    strata_host_free(tensor);
    strata_ref_release(ref);
}

/* Checks that the shape has as many elements as the reference. Errors: INVALID_VALUE. */
static strata_status check_shape(const strata_ref *ref, const strata_dlpack_options *options)
{
    if (options->ndim < 0 || options->ndim > MOST_DIMENSIONS || (options->ndim && !options->shape))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_export_dlpack: %d dimensions%s; at most %d can be",
                           (int)options->ndim, options->shape ? "" : " without a shape", MOST_DIMENSIONS);
    if (!options->shape)
        return STRATA_SUCCESS;
    size_t elements;
    const DLManagedTensorVersioned shaped = {.dl_tensor = {.ndim = options->ndim, .shape = (int64_t *)options->shape}};
    const strata_status status = strata_dlpack_count(&shaped, &elements);
    return status != STRATA_SUCCESS || elements == ref->length
               ? status
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "strata_ref_export_dlpack: the shape has %zu elements, the reference %zu", elements,
                             ref->length);
}

static void set_extents(DLTensor *tensor, const strata_dlpack_options *options, size_t length, int64_t *extents)
{
    tensor->ndim = options->shape ? options->ndim : 1;
    tensor->shape = extents;
    tensor->strides = extents + tensor->ndim;
    int64_t stride = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        tensor->shape[i] = options->shape ? options->shape[i] : (int64_t)length;
        tensor->strides[i] = stride;
        stride *= length ? tensor->shape[i] : 1; /* without elements the product may overflow */
    }
}

/* Asks the driver which kind of memory it is: the owner decides that, and a stack may have several. */
static strata_status find_device(const strata_ref *ref, DLDevice *out)
{
    *out = (DLDevice){kDLCUDA, ref->record->device->ordinal};
    if (ref->whole->imported)
        *out = ref->whole->imported->dl_tensor.device;
    if (ref->whole->imported || !ref->address)
        return STRATA_SUCCESS;
    strata_call_scope scope;
    const strata_status status =
        strata_call_scope_enter(&scope, ref->record->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    unsigned managed = 0;
    CUmemorytype kind = CU_MEMORYTYPE_DEVICE;
    CUresult result = strata_cu.PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ref->address);
    if (result == CUDA_SUCCESS)
        result = strata_cu.PointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ref->address);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuPointerGetAttribute", "finding the kind of exported memory");
    if (managed)
        out->device_type = kDLCUDAManaged;
    else if (kind == CU_MEMORYTYPE_HOST)
        *out = (DLDevice){kDLCUDAHost, 0};
    return STRATA_SUCCESS;
}

static strata_status make_tensor(strata_ref *ref, const strata_dlpack_options *options, exported_tensor **out)
{
    const size_t dimensions = options->shape ? (size_t)options->ndim : 1;
    DLDevice device;
    const strata_status status = find_device(ref, &device);
    if (status != STRATA_SUCCESS)
        return status;
    exported_tensor *tensor = strata_host_zalloc(sizeof *tensor + 2 * dimensions * sizeof tensor->extents[0]);
    if (!tensor)
        return strata_fail_host_memory("a DLPack tensor");
    tensor->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = tensor,
        .deleter = delete_tensor,
        .flags = options->read_only || ref->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0,
        .dl_tensor = {
            .data = (void *)(uintptr_t)ref->address, .device = device, .dtype = strata_dlpack_type(ref->type)}};
    set_extents(&tensor->managed.dl_tensor, options, ref->length, tensor->extents);
    *out = tensor;
    return STRATA_SUCCESS;
}

/* ---- order ---- */

/* Makes later work on the stream come after recorded uses. */
static strata_status order(const strata_ref *ref, int64_t number, strata_access access)
{
    CUstream stream = (CUstream)(uintptr_t)number; /* 1 and 2 are CUDA's names of those streams, too */
    if (number == STRATA_DLPACK_STREAM_NONE || !ref->address)
        return STRATA_SUCCESS;
    if (ref->foreign)
        return strata_fail(STRATA_ERROR_STREAM_MISUSE, "foreign memory is not tracked: order the streams yourself, and "
                                                       "export it with STRATA_DLPACK_STREAM_NONE");
    const strata_status status = strata_runtime_prepare_block_use(ref->runtime, &ref->block, stream, access);
    return status == STRATA_SUCCESS
               ? strata_runtime_finish_block_use(ref->runtime, &ref->block, stream, STRATA_ACCESS_NONE)
               : status;
}

strata_status strata_ref_export_dlpack(strata_ref *ref, int64_t stream, const strata_dlpack_options *given,
                                       struct DLManagedTensorVersioned **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_export_dlpack: out is NULL");
    *out = NULL;
    strata_ref_memory memory;
    strata_dlpack_options options;
    exported_tensor *tensor = NULL;
    strata_status status = strata_ref_access(ref, &memory);
    if (status == STRATA_SUCCESS)
        status = strata_reference_check_local(ref, "strata_ref_export_dlpack");
    if (status == STRATA_SUCCESS)
        status = strata_options_read(&options, sizeof options, given, "strata_dlpack_options");
    if (status == STRATA_SUCCESS && (stream == 0 || stream < STRATA_DLPACK_STREAM_NONE))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "stream %lld is forbidden by DLPack; the legacy default "
                             "stream is 1, the per-thread one 2, and no stream -1",
                             (long long)stream);
    if (status == STRATA_SUCCESS)
        status = check_shape(ref, &options);
    if (status == STRATA_SUCCESS)
        status = make_tensor(ref, &options, &tensor);
    if (status != STRATA_SUCCESS)
        return status;
    status = order(ref, stream, tensor->managed.flags ? STRATA_ACCESS_READ : STRATA_ACCESS_READ_WRITE);
    if (status != STRATA_SUCCESS) {
        strata_host_free(tensor);
        return status;
    }
    atomic_store_explicit(&ref->whole->unrecorded, true, memory_order_relaxed);
    tensor->ref = strata_ref_clone(ref);
    *out = &tensor->managed;
    return STRATA_SUCCESS;
}
