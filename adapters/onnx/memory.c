/* Memory that ONNX Runtime allocates and frees by address. */
#include "adapters/onnx/onnx.h"
#include "core/base/error.h"
#include "runtime/runtime.h"

enum { ALIGNMENT = 256 /* as cudaMalloc (CUDA C++ Programming Guide, "Device Memory Accesses") */ };

strata_status onnx_check(strata_runtime *runtime, CUstream stream)
{
    const strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    if (stream == STRATA_STREAM_GONE || stream == CU_STREAM_PER_THREAD)
        return strata_fail(
            STRATA_ERROR_INVALID_VALUE,
            "%s is no stream that every thread can free on, as ONNX Runtime's do; create one, and give it "
            "to the provider as user_compute_stream",
            stream == CU_STREAM_PER_THREAD ? "CU_STREAM_PER_THREAD" : "STRATA_STREAM_GONE");
    if (!(runtime->top->ops->capabilities(runtime->top) & STRATA_CAPABILITY_FIND))
        return strata_fail(
            STRATA_ERROR_UNSUPPORTED,
            "stack \"%s\" cannot free by address, as ONNX Runtime does; choose another owner, such as pool",
            strata_stack_text(runtime->stack));
    return STRATA_SUCCESS;
}

void *onnx_allocate(strata_runtime *runtime, size_t bytes, CUstream stream, onnx_live *live)
{
    strata_block block;
    const strata_request request = {.bytes = bytes, .alignment = ALIGNMENT, .stream = stream};
    if (!bytes || strata_runtime_allocate_request(runtime, &request, &block) != STRATA_SUCCESS)
        return NULL;
    atomic_fetch_add_explicit(live, 1, memory_order_relaxed);
    return (void *)(uintptr_t)block.address;
}

/* After the driver's end nothing is looked up, and the free has no effect. */
static strata_status deallocate(strata_runtime *runtime, CUdeviceptr address)
{
    strata_block block;
    strata_error_suppress_begin();
    const strata_status status = strata_runtime_find(runtime, address, &block);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS && block.address == address
               ? strata_runtime_deallocate_on(runtime, &block, block.stream)
               : strata_runtime_deallocate_address(runtime, address, NULL);
}

void onnx_deallocate(strata_runtime *runtime, void *address, onnx_live *live)
{
    if (address && deallocate(runtime, (CUdeviceptr)(uintptr_t)address) == STRATA_SUCCESS)
        atomic_fetch_sub_explicit(live, 1, memory_order_relaxed);
}
