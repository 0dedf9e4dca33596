/* The ends of contexts: what belonged to one ends with it. */
#include "adapters/exec/exec.h"

#include "driver/driver.h"

static _Atomic int retained[EXEC_DEVICES]; /* by the program; Strata's own does not come here */

static void context_ended(CUcontext context)
{
    exec_streams_forget(context);
    exec_free_all_waiting(); /* a capture may have ended with it */
    exec_passed_forget(context);
    exec_device_context_ended();
}

void exec_device_was_reset(int ordinal)
{
    const CUcontext context = exec_device_give_up(ordinal);
    if (context)
        context_ended(context);
}

EXEC_EXPORT CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context)
{
    __typeof__(&cuCtxDestroy_v2) real = EXEC_REAL(cuCtxDestroy_v2);
    const CUresult result = real ? real(context) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        context_ended(context);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuCtxDestroy(CUcontext context)
{
    __typeof__(&cuCtxDestroy) real = EXEC_REAL(cuCtxDestroy);
    const CUresult result = real ? real(context) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        context_ended(context);
    return result;
}

/* ---- primary contexts ---- */

static CUresult was_reset(CUresult result, CUdevice device)
{
    if (result == CUDA_SUCCESS)
        exec_device_was_reset(device);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxReset_v2) real = EXEC_REAL(cuDevicePrimaryCtxReset_v2);
    return was_reset(real ? real(device) : CUDA_ERROR_NOT_FOUND, device);
}

EXEC_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxReset) real = EXEC_REAL(cuDevicePrimaryCtxReset);
    return was_reset(real ? real(device) : CUDA_ERROR_NOT_FOUND, device);
}

static bool is_device(CUdevice device)
{
    return device >= 0 && device < EXEC_DEVICES;
}

EXEC_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxRetain) real = EXEC_REAL(cuDevicePrimaryCtxRetain);
    const CUresult result = real ? real(context, device) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS && is_device(device))
        atomic_fetch_add(&retained[device], 1);
    return result;
}

/* The last release of the program ends the context, which Strata retains, too: it is reset instead. */
static CUresult released(CUresult result, CUdevice device)
{
    if (result != CUDA_SUCCESS || !is_device(device) || atomic_fetch_sub(&retained[device], 1) != 1 ||
        !exec_device_at((size_t)device))
        return result;
    if (strata_cu.DevicePrimaryCtxReset && strata_cu.DevicePrimaryCtxReset(device) == CUDA_SUCCESS)
        exec_device_was_reset(device);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxRelease_v2) real = EXEC_REAL(cuDevicePrimaryCtxRelease_v2);
    return released(real ? real(device) : CUDA_ERROR_NOT_FOUND, device);
}

EXEC_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxRelease) real = EXEC_REAL(cuDevicePrimaryCtxRelease);
    return released(real ? real(device) : CUDA_ERROR_NOT_FOUND, device);
}
