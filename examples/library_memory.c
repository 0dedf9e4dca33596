/* Memory of other libraries from a runtime: a workspace by a memory handler, as cuTensorNet, cuStateVec and cuDSS take
 * one, texts for ONNX Runtime's provider options, and a block that is registered with NCCL, if the process has it. All
 * of it under one budget. docs/libraries.md */
#include "cuda_calls.h"

#include <stdlib.h>

enum { WORKSPACE = 6 << 20, BUFFER = 8 << 20 };

static cuda_calls cu;

/* What such a library does: it keeps a copy of the handler, and takes memory for work on a stream. */
static bool library_computes(const strata_mem_handler *given, CUstream stream)
{
    const strata_mem_handler handler = *given;
    void *workspace = NULL;
    if (handler.allocate(handler.context, &workspace, WORKSPACE, stream) != 0)
        return false;
    const CUresult result = cu.MemsetD8Async((CUdeviceptr)(uintptr_t)workspace, 1, WORKSPACE, stream);
    return handler.deallocate(handler.context, workspace, WORKSPACE, stream) == 0 && result == CUDA_SUCCESS;
}

/* With the real libraries: cutensornetSetDeviceMemHandler(handle, (const cutensornetDeviceMemHandler_t *)&handler), and
 * custatevecSetDeviceMemHandler, cudssSetDeviceMemHandler. */
static bool use_handler(strata_runtime *runtime, CUstream stream)
{
    strata_mem_handler handler;
    if (strata_mem_handler_fill(runtime, "strata", &handler) != STRATA_SUCCESS || !library_computes(&handler, stream))
        return false;
    printf("a workspace of %d MiB, from a handler named \"%s\"\n", WORKSPACE >> 20, handler.name);
    return true;
}

static bool show_options(strata_runtime *runtime, CUstream stream)
{
    strata_onnx_functions functions;
    if (strata_onnx_bind(runtime, stream, &functions) != STRATA_SUCCESS)
        return false;
    printf("user_compute_stream = %s\ngpu_external_alloc = %s\ngpu_external_free = %s\ngpu_external_empty_cache = %s\n",
           functions.stream_text, functions.allocate_text, functions.deallocate_text, functions.empty_cache_text);
    return strata_onnx_unbind() == STRATA_SUCCESS;
}

/* The communicator is an ncclComm_t; without one there is nothing to register with. */
static bool use_nccl(strata_runtime *runtime, CUstream stream, void *communicator)
{
    strata_block block;
    strata_nccl_registration *registration = NULL;
    if (strata_runtime_allocate(runtime, BUFFER, stream, &block) != STRATA_SUCCESS)
        return false;
    strata_status status = STRATA_SUCCESS;
    if (communicator) {
        status = strata_nccl_register(runtime, communicator, &block, NULL, &registration);
        /* here: ncclAllReduce and the like, on memory of block.address */
        if (status == STRATA_SUCCESS)
            status = strata_nccl_deregister(registration);
    }
    printf("a contiguous block of %zu MiB%s\n", block.bytes >> 20, communicator ? ", registered" : "");
    return strata_runtime_deallocate(runtime, &block) == STRATA_SUCCESS && status == STRATA_SUCCESS;
}

static bool run(strata_runtime *runtime)
{
    CUstream stream;
    if (strata_runtime_stream_acquire(runtime, &stream) != STRATA_SUCCESS)
        return false;
    bool done = use_handler(runtime, stream) && show_options(runtime, stream) && use_nccl(runtime, stream, NULL);
    done &= strata_runtime_stream_synchronize(runtime, stream) == STRATA_SUCCESS;
    return strata_runtime_stream_release(runtime, stream) == STRATA_SUCCESS && done;
}

int main(void)
{
    strata_runtime *runtime;
    const strata_runtime_config config = {.size = sizeof config,
                                          .stack_text = "budget(limit=64MiB), pool(contiguous=4MiB)"};
    if (!cuda_open(&cu))
        return EXIT_FAILURE;
    if (strata_runtime_create(&config, &runtime) != STRATA_SUCCESS) {
        fprintf(stderr, "%s\n", strata_last_error()->message);
        return EXIT_FAILURE;
    }
    bool done = run(runtime);
    if (!done)
        fprintf(stderr, "%s\n", strata_last_error()->message);
    done &= strata_runtime_destroy(runtime) == STRATA_SUCCESS;
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
