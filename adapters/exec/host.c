/* Host memory that the driver makes or knows: passed on, and counted. No budget of a device counts it. */
#include "adapters/exec/exec.h"

static CUresult made(CUresult result, exec_kind kind, void *const *memory, size_t bytes)
{
    if (result == CUDA_SUCCESS && memory)
        exec_passed_note(kind, (uintptr_t)*memory, bytes);
    return result;
}

static CUresult ended(CUresult result, exec_kind kind, const void *memory)
{
    if (result == CUDA_SUCCESS && memory)
        exec_passed_drop(kind, (uintptr_t)memory);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocHost_v2(void **memory, size_t bytes)
{
    return made(EXEC_CALL(cuMemAllocHost_v2, memory, bytes), EXEC_HOST, memory, bytes);
}

EXEC_EXPORT CUresult CUDAAPI cuMemAllocHost(void **memory, unsigned bytes)
{
    return made(EXEC_CALL(cuMemAllocHost, memory, bytes), EXEC_HOST, memory, bytes);
}

EXEC_EXPORT CUresult CUDAAPI cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    return made(EXEC_CALL(cuMemHostAlloc, memory, bytes, flags), EXEC_HOST, memory, bytes);
}

EXEC_EXPORT CUresult CUDAAPI cuMemFreeHost(void *memory)
{
    return ended(EXEC_CALL(cuMemFreeHost, memory), EXEC_HOST, memory);
}

EXEC_EXPORT CUresult CUDAAPI cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    return made(EXEC_CALL(cuMemHostRegister_v2, memory, bytes, flags), EXEC_REGISTERED, &memory, bytes);
}

EXEC_EXPORT CUresult CUDAAPI cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    return made(EXEC_CALL(cuMemHostRegister, memory, bytes, flags), EXEC_REGISTERED, &memory, bytes);
}

EXEC_EXPORT CUresult CUDAAPI cuMemHostUnregister(void *memory)
{
    return ended(EXEC_CALL(cuMemHostUnregister, memory), EXEC_REGISTERED, memory);
}
