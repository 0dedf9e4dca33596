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
    exec_device *device = ordinal >= 0 && ordinal < EXEC_DEVICES ? exec_device_at((size_t)ordinal) : NULL;
    if (device)
        exec_forget_waiting(device);
    const CUcontext context = exec_device_give_up(ordinal);
    if (context)
        context_ended(context);
}

/* A hook of a call that is made first, and whose result `done` sees and returns. */
#define AFTER_CALL(name, type, done)                  \
    EXEC_EXPORT CUresult CUDAAPI name(type handle)    \
    {                                                 \
        return done(EXEC_CALL(name, handle), handle); \
    }

static CUresult destroyed(CUresult result, CUcontext context)
{
    if (result == CUDA_SUCCESS)
        context_ended(context);
    return result;
}

AFTER_CALL(cuCtxDestroy, CUcontext, destroyed)
AFTER_CALL(cuCtxDestroy_v2, CUcontext, destroyed)

/* ---- primary contexts ---- */

static CUresult was_reset(CUresult result, CUdevice device)
{
    if (result == CUDA_SUCCESS)
        exec_device_was_reset(device);
    return result;
}

AFTER_CALL(cuDevicePrimaryCtxReset, CUdevice, was_reset)
AFTER_CALL(cuDevicePrimaryCtxReset_v2, CUdevice, was_reset)

static bool is_device(CUdevice device)
{
    return device >= 0 && device < EXEC_DEVICES;
}

EXEC_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    const CUresult result = EXEC_CALL(cuDevicePrimaryCtxRetain, context, device);
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

AFTER_CALL(cuDevicePrimaryCtxRelease, CUdevice, released)
AFTER_CALL(cuDevicePrimaryCtxRelease_v2, CUdevice, released)
