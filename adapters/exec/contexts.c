/* The ends of contexts: what belonged to one ends with it.
 *
 * Strata retains the primary context, too. When the program has no reference of its own left, Strata's is given back:
 * the context ends then, as it would without Strata, unless others hold it, such as green contexts. */
#include "adapters/exec/exec.h"

#include "core/streams/device.h"

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

/* References outlive a reset. Strata's goes back, for the next release to be answered as without it. */
static CUresult was_reset(CUresult result, CUdevice device)
{
    if (result != CUDA_SUCCESS || exec_is_forked())
        return result;
    exec_device_was_reset(device);
    if (device >= 0 && device < EXEC_DEVICES && strata_driver_is_open()) {
        strata_devices_look();
        strata_device_give_back(device);
    }
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

static void end_if_unused(int ordinal)
{
    if (atomic_load(&retained[ordinal]) == 0 && strata_device_give_back(ordinal))
        exec_device_was_reset(ordinal);
}

/* A release may be one more than this library has seen: of a reference that the CUDA runtime took in its own way. */
static CUresult released(CUresult result, CUdevice device)
{
    if (result != CUDA_SUCCESS || !is_device(device))
        return result;
    int count = atomic_load(&retained[device]);
    while (count > 0 && !atomic_compare_exchange_weak(&retained[device], &count, count - 1)) {
    }
    end_if_unused(device);
    return result;
}

AFTER_CALL(cuDevicePrimaryCtxRelease, CUdevice, released)
AFTER_CALL(cuDevicePrimaryCtxRelease_v2, CUdevice, released)

/* A green context holds the primary one of its device. */
EXEC_EXPORT CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx green)
{
    const CUresult result = EXEC_CALL(cuGreenCtxDestroy, green);
    for (int i = 0; result == CUDA_SUCCESS && i < EXEC_DEVICES; i++)
        end_if_unused(i);
    return result;
}
