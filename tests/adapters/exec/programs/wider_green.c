/* Green contexts of the wider driver, and its count of references to primary contexts. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include "wider_driver.h"

#include <stdio.h>

CUgreenCtx all_green;
static _Thread_local char this_thread;

/* The driver's own references come by no function that the program could find. */
static int retains, releases; /* of all others */

CUresult CUDAAPI retain_primary(CUcontext *out, CUdevice device)
{
    CUresult (*retain)(CUcontext *, CUdevice);
    void *address = inside("cuDevicePrimaryCtxRetain", 7000);
    memcpy(&retain, &address, sizeof retain);
    const CUresult result = retain(out, device);
    retains += result == CUDA_SUCCESS;
    return result;
}

/* The next last releases, in the middle of which another module begins the context anew. */
static _Atomic int begins_due;

CUresult CUDAAPI cuNewBegins(int count)
{
    begins_due = count;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI release_primary(CUdevice device)
{
    CUresult (*release)(CUdevice);
    void *address = inside("cuDevicePrimaryCtxRelease", 11000);
    memcpy(&release, &address, sizeof release);
    const CUresult result = release(device);
    releases += result == CUDA_SUCCESS;
    if (begins_due > 0 && retains == releases) {
        CUcontext again;
        begins_due--;
        retain_primary(&again, device);
    }
    return result;
}

CUresult CUDAAPI cuNewReferences(int *held, int *given_back)
{
    *held = retains - releases;
    *given_back = releases;
    return CUDA_SUCCESS;
}

static CUcontext enter(CUcontext context)
{
    CUcontext before = NULL;
    BEHIND(cuCtxGetCurrent, "cuCtxGetCurrent", 4000);
    BEHIND(cuCtxSetCurrent, "cuCtxSetCurrent", 4000);
    cuCtxGetCurrent_behind(&before);
    cuCtxSetCurrent_behind(context);
    return before;
}

EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    CUgreenCtx green = all_green;
    BEHIND(cuCtxSetCurrent, "cuCtxSetCurrent", 4000);
    while (green && green->own != context)
        green = green->next;
    if (green && green->thread && green->thread != &this_thread)
        return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult result = cuCtxSetCurrent_behind(context);
    for (CUgreenCtx each = all_green; result == CUDA_SUCCESS && each; each = each->next)
        if (each == green)
            each->thread = &this_thread;
        else if (each->thread == &this_thread)
            each->thread = NULL;
    return result;
}

/* Whether a green context has an id of its own is not documented: here it has the primary one's. */
EXPORT CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long *id)
{
    CUgreenCtx green = all_green;
    CUcontext meant = context;
    BEHIND(cuCtxGetCurrent, "cuCtxGetCurrent", 4000);
    BEHIND(cuCtxGetId, "cuCtxGetId", 12000);
    if (!context)
        cuCtxGetCurrent_behind(&meant);
    while (green && green->own != meant)
        green = green->next;
    return cuCtxGetId_behind(green ? green->primary : context, id);
}

EXPORT CUresult CUDAAPI cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    (void)device;
    resource->type = type;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned count)
{
    (void)resources;
    *out = NULL;
    return count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc resources, CUdevice device, unsigned flags)
{
    BEHIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000);
    BEHIND(cuCtxCreate_v2, "cuCtxCreate", 3020);
    BEHIND(cuStreamCreate, "cuStreamCreate", 2000);
    (void)resources;
    (void)flags;
    const CUgreenCtx green = calloc(1, sizeof *green);
    const CUresult result = cuDevicePrimaryCtxRetain_behind(&green->primary, device);
    green->device = device;
    const CUcontext before = enter(green->primary);
    cuStreamCreate_behind(&green->helper, CU_STREAM_NON_BLOCKING);
    cuCtxCreate_v2_behind(&green->own, 0, device);
    enter(before);
    green->next = all_green;
    *out = all_green = green;
    return result;
}

EXPORT CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx green)
{
    BEHIND(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 11000);
    BEHIND(cuStreamDestroy_v2, "cuStreamDestroy", 4000);
    BEHIND(cuCtxDestroy_v2, "cuCtxDestroy", 4000);
    CUgreenCtx *link = &all_green;
    while (*link != green)
        link = &(*link)->next;
    *link = green->next;
    const CUdevice device = green->device;
    while (green->count)
        cuStreamDestroy_v2_behind(green->streams[--green->count]);
    cuStreamDestroy_v2_behind(green->helper);
    cuCtxDestroy_v2_behind(green->own);
    free(green);
    return cuDevicePrimaryCtxRelease_behind(device);
}

EXPORT CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green)
{
    *out = green->own;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned flags, int priority)
{
    BEHIND(cuStreamCreate, "cuStreamCreate", 2000);
    (void)priority;
    const CUresult result = cuStreamCreate_behind(out, flags);
    if (result == CUDA_SUCCESS)
        green->streams[green->count++] = *out;
    return result;
}

/* A capture there ends, and is no work. */
static CUresult check_green(CUgreenCtx green)
{
    BEHIND(cuStreamIsCapturing, "cuStreamIsCapturing", 10000);
    BEHIND(cuStreamSynchronize, "cuStreamSynchronize", 2000);
    CUresult result = CUDA_SUCCESS;
    if (green->dead) {
        fprintf(stderr, "a call with a green context that has ended\n");
        abort();
    }
    for (size_t i = 0; i < green->count; i++) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        cuStreamIsCapturing_behind(green->streams[i], &status);
        if (status == CU_STREAM_CAPTURE_STATUS_NONE)
            continue;
        cuStreamSynchronize_behind(green->streams[i]);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

/* All work of the green context: of its default streams, and of its own. */
EXPORT CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    BEHIND(cuEventCreate, "cuEventCreate", 2000);
    BEHIND(cuEventRecord, "cuEventRecord", 2000);
    BEHIND(cuEventDestroy_v2, "cuEventDestroy", 4000);
    BEHIND(cuStreamWaitEvent, "cuStreamWaitEvent", 3020);
    CUevent work = NULL;
    CUresult result = check_green(green);
    const CUcontext before = enter(green->own);
    if (result == CUDA_SUCCESS)
        result = cuEventCreate_behind(&work, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = cuEventRecord_behind(work, CU_STREAM_LEGACY);
    enter(green->primary);
    if (result == CUDA_SUCCESS)
        result = cuStreamWaitEvent_behind(green->helper, work, 0);
    for (size_t i = 0; result == CUDA_SUCCESS && i < green->count; i++) {
        result = cuEventRecord_behind(event, green->streams[i]);
        if (result == CUDA_SUCCESS)
            result = cuStreamWaitEvent_behind(green->helper, event, 0);
    }
    if (result == CUDA_SUCCESS)
        result = cuEventRecord_behind(event, green->helper);
    if (work)
        cuEventDestroy_v2_behind(work);
    enter(before);
    return result;
}

EXPORT CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    BEHIND(cuStreamWaitEvent, "cuStreamWaitEvent", 3020);
    CUresult result = check_green(green);
    const CUcontext before = enter(green->own);
    if (result == CUDA_SUCCESS)
        result = cuStreamWaitEvent_behind(CU_STREAM_LEGACY, event, 0);
    for (size_t i = 0; result == CUDA_SUCCESS && i < green->count; i++)
        result = cuStreamWaitEvent_behind(green->streams[i], event, 0);
    enter(before);
    return result;
}

/* Of its context, and of its own. */
EXPORT CUresult CUDAAPI cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *out)
{
    BEHIND(cuStreamGetCtx, "cuStreamGetCtx", 9020);
    CUcontext context = NULL;
    CUgreenCtx green = all_green;
    const CUresult result = cuStreamGetCtx_behind(stream, &context);
    for (; green && green->own != context; green = green->next) {
        size_t i = 0;
        while (i < green->count && green->streams[i] != stream)
            i++;
        if (i < green->count)
            break;
    }
    *out = green;
    return result;
}
