/* DLPack tensors as references, and as arguments of launches. */
#include <strata/dlpack.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/dlpack.h"
#include "runtime/launch.h"
#include "runtime/references.h"

/* ---- references ---- */

/* A tensor's memory, as a reference has it. */
typedef struct tensor_memory {
    strata_element type;
    size_t length;
    CUdeviceptr address; /* 0 without elements */
    size_t bytes;
    strata_block block; /* empty: none of the stack */
} tensor_memory;

static strata_status check_device(const strata_runtime *runtime, const DLTensor *tensor)
{
    const int type = (int)tensor->device.device_type;
    if (!strata_dlpack_is_cuda(type))
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "the tensor is on a device of DLPack's type %d; references need CUDA memory", type);
    return type != kDLCUDA || tensor->device.device_id == runtime->device->ordinal
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_WRONG_DEVICE, "the tensor is on device %d, the runtime on %d",
                             (int)tensor->device.device_id, runtime->device->ordinal);
}

static strata_status check_layout(const DLTensor *tensor, tensor_memory *memory)
{
    memory->type = strata_dlpack_element(tensor->dtype);
    if (memory->type == STRATA_ELEMENT_NONE)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "references do not support the tensor's type (code %u, %u bits, %u lanes)",
                           tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes);
    return memory->length == 0 || strata_dlpack_is_compact(tensor)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_UNSUPPORTED,
                             "the tensor is not compact: its elements do not lie one behind the other");
}

/* Finds the stack's block in which the memory begins, if any. Errors: INVALID_VALUE (the memory exceeds it). */
static strata_status find_block(strata_runtime *runtime, tensor_memory *memory)
{
    strata_error_suppress_begin();
    const strata_status found = runtime->top->ops->find(runtime->top, memory->address, &memory->block);
    strata_error_suppress_end(false);
    if (found != STRATA_SUCCESS)
        memory->block = (strata_block){0};
    const strata_block *block = &memory->block;
    return found != STRATA_SUCCESS || memory->bytes <= block->bytes - (memory->address - block->address)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "the tensor exceeds block 0x%llx (tag \"%s\"), in which it begins",
                             (unsigned long long)block->address, strata_tag_name(block->tag));
}

static strata_status read_tensor(strata_runtime *runtime, const DLManagedTensorVersioned *tensor, tensor_memory *memory)
{
    *memory = (tensor_memory){0};
    strata_status status = strata_dlpack_check_version(tensor);
    if (status == STRATA_SUCCESS)
        status = check_device(runtime, &tensor->dl_tensor);
    if (status == STRATA_SUCCESS)
        status = strata_dlpack_count(tensor, &memory->length);
    if (status == STRATA_SUCCESS)
        status = check_layout(&tensor->dl_tensor, memory);
    if (status != STRATA_SUCCESS || memory->length == 0)
        return status;
    status = strata_dlpack_find_range(tensor, &memory->address, &memory->bytes);
    if (status == STRATA_SUCCESS)
        status = strata_element_check_alignment(memory->address, memory->type);
    return status == STRATA_SUCCESS ? find_block(runtime, memory) : status;
}

strata_status strata_ref_import_dlpack(strata_runtime *runtime, struct DLManagedTensorVersioned *tensor,
                                       strata_ref **out)
{
    if (!tensor || !out) {
        if (out)
            *out = NULL;
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_import_dlpack: tensor or out is NULL");
    }
    *out = NULL;
    tensor_memory memory;
    strata_ref *ref;
    strata_status status = strata_check_runtime(runtime);
    if (status == STRATA_SUCCESS)
        status = read_tensor(runtime, tensor, &memory);
    if (status == STRATA_SUCCESS)
        status = strata_reference_make(runtime, memory.type, memory.length, &ref);
    if (status != STRATA_SUCCESS)
        return status;
    ref->imported = tensor;
    ref->address = memory.address;
    ref->bytes = memory.bytes;
    ref->block = memory.block;
    ref->foreign = memory.length && strata_block_is_empty(&memory.block);
    ref->read_only = (tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    strata_device_record_hold(ref->record, false);
    *out = ref;
    return STRATA_SUCCESS;
}

/* ---- launches ---- */

static strata_status check_writable(const DLManagedTensorVersioned *tensor, strata_access access)
{
    return (tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY) && (access & STRATA_ACCESS_WRITE)
               ? strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_launch_use_dlpack: the tensor is read-only")
               : STRATA_SUCCESS;
}

static strata_status use_memory(strata_launch *launch, const DLManagedTensorVersioned *tensor, strata_access access)
{
    const DLDevice device = tensor->dl_tensor.device;
    if (!strata_dlpack_is_cuda((int)device.device_type))
        return strata_launch_leave_out(launch, STRATA_ERROR_FOREIGN_POINTER, "the tensor is on no CUDA device");
    if (device.device_type == kDLCUDA && device.device_id != strata_runtime_device(launch->runtime))
        return strata_launch_leave_out(launch, STRATA_ERROR_WRONG_DEVICE, "the tensor is on another device");
    CUdeviceptr address;
    size_t bytes;
    const strata_status status = strata_dlpack_find_range(tensor, &address, &bytes);
    return status == STRATA_SUCCESS ? strata_launch_use_range(launch, address, bytes, access)
                                    : strata_launch_remember(launch, status);
}

strata_status strata_launch_use_dlpack(strata_launch *launch, const struct DLManagedTensorVersioned *tensor,
                                       strata_access access)
{
    strata_status status = strata_launch_check_use(launch, access, "strata_launch_use_dlpack");
    size_t elements = 0;
    if (status != STRATA_SUCCESS)
        return strata_launch_remember(launch, status);
    if (!tensor)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_launch_use_dlpack: tensor is NULL");
    if (status == STRATA_SUCCESS)
        status = strata_dlpack_check_version(tensor);
    if (status == STRATA_SUCCESS)
        status = check_writable(tensor, access);
    if (status == STRATA_SUCCESS)
        status = strata_dlpack_count(tensor, &elements);
    if (status != STRATA_SUCCESS || elements == 0)
        return strata_launch_remember(launch, status);
    return use_memory(launch, tensor, access);
}
