/* Host memory that the driver makes or knows: passed on, and counted. No budget of a device counts it. */
#include "adapters/exec/exec.h"

static CUresult made(CUresult result, exec_kind kind, void *const *memory, size_t bytes, const void *caller)
{
    if (result == CUDA_SUCCESS && memory)
        exec_passed_note(kind, (uintptr_t)*memory, bytes, caller);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocHost_v2(void **memory, size_t bytes)
{
    return made(EXEC_CALL(cuMemAllocHost_v2, memory, bytes), EXEC_HOST, memory, bytes, EXEC_CALLER);
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocHost(void **memory, unsigned bytes)
{
    return made(EXEC_CALL(cuMemAllocHost, memory, bytes), EXEC_HOST, memory, bytes, EXEC_CALLER);
}

EXEC_EXPORT CUresult CUDAAPI cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    return made(EXEC_CALL(cuMemHostAlloc, memory, bytes, flags), EXEC_HOST, memory, bytes, EXEC_CALLER);
}

EXEC_EXPORT CUresult CUDAAPI cuMemFreeHost(void *memory)
{
    exec_release release;
    exec_release_begin(EXEC_HOST, (uintptr_t)memory, &release);
    return exec_release_end(&release, EXEC_CALL(cuMemFreeHost, memory));
}

EXEC_EXPORT CUresult CUDAAPI cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    return made(EXEC_CALL(cuMemHostRegister_v2, memory, bytes, flags), EXEC_REGISTERED, &memory, bytes, EXEC_CALLER);
}

EXEC_EXPORT CUresult CUDAAPI cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    return made(EXEC_CALL(cuMemHostRegister, memory, bytes, flags), EXEC_REGISTERED, &memory, bytes, EXEC_CALLER);
}

EXEC_EXPORT CUresult CUDAAPI cuMemHostUnregister(void *memory)
{
    exec_release release;
    exec_release_begin(EXEC_REGISTERED, (uintptr_t)memory, &release);
    return exec_release_end(&release, EXEC_CALL(cuMemHostUnregister, memory));
}
