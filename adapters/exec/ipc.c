/* The hooks of memory that goes between processes. */
#include "adapters/exec/ipc.h"

#include "core/base/error.h"

#include <string.h>

/* Says once what the error that the program gets does not. */
static void say_what_to_do(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        exec_say("cuIpcGetMemHandle: the memory of this stack cannot be given to another process; start both "
                 "processes with --ipc, or with --stack direct");
}

EXEC_EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    strata_block block;
    exec_ipc_handle handle;
    exec_device *device = out ? exec_find_own_block(address, &block) : NULL;
    if (!device)
        return EXEC_CALL(cuIpcGetMemHandle, out, address);
    strata_error_suppress_begin();
    const strata_status status = exec_ipc_offer(device, &block, &handle);
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS) {
        memcpy(out, &handle, sizeof handle);
        return CUDA_SUCCESS;
    }
    if (status == STRATA_ERROR_UNSUPPORTED)
        say_what_to_do();
    return EXEC_CALL(cuIpcGetMemHandle, out, address); /* of a stack without a pool it may be the driver's own */
}

static bool is_of_strata(const CUipcMemHandle *given, exec_ipc_handle *handle)
{
    memcpy(handle, given, sizeof *handle);
    return exec_is_wanted() && !exec_is_forked() && memcmp(handle->magic, EXEC_IPC_MAGIC, sizeof handle->magic) == 0 &&
           memchr(handle->socket, '\0', sizeof handle->socket);
}

static CUresult open_of_strata(const exec_ipc_handle *handle, CUdeviceptr *out, const void *caller)
{
    size_t bytes;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (exec_ipc_is_own(handle)) /* as the driver says */
        return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult result = exec_ipc_open(handle, out, &bytes);
    if (result == CUDA_SUCCESS)
        exec_passed_note(EXEC_IMPORTED, *out, bytes, caller);
    return result;
}

static CUresult opened(CUresult result, const CUdeviceptr *out, const void *caller)
{
    size_t bytes = 0;
    if (result != CUDA_SUCCESS || !out)
        return result;
    (void)EXEC_CALL(cuMemGetAddressRange_v2, NULL, &bytes, *out);
    exec_passed_note(EXEC_IMPORTED, *out, bytes, caller);
    return result;
}

#define OPEN_HOOK(name)                                                                                      \
    EXEC_EXPORT CUresult CUDAAPI name(CUdeviceptr *out, CUipcMemHandle given, unsigned flags)                \
    {                                                                                                        \
        exec_ipc_handle handle;                                                                              \
        return is_of_strata(&given, &handle) ? open_of_strata(&handle, out, EXEC_CALLER)                     \
                                             : opened(EXEC_CALL(name, out, given, flags), out, EXEC_CALLER); \
    }

OPEN_HOOK(cuIpcOpenMemHandle)
OPEN_HOOK(cuIpcOpenMemHandle_v2)

EXEC_EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUresult result;
    exec_release release;
    exec_release_begin(EXEC_IMPORTED, address, &release);
    if (!exec_ipc_close(address, &result))
        result = EXEC_CALL(cuIpcCloseMemHandle, address);
    return exec_release_end(&release, result);
}
