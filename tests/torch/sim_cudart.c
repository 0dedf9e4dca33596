/* The functions of the CUDA runtime that PyTorch's allocators, streams and copies call, over the simulated driver: with
 * it PyTorch's own libraries run on a machine without a GPU. Kernels are not run: a launch succeeds and does nothing.
 *
 * build-sim-cudart makes a libcudart.so.13 of it, with a function that answers "not supported" for each other one that
 * PyTorch's libraries name. It is loaded in place of PyTorch's own by LD_PRELOAD. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef cudaGetDeviceProperties
#undef cudaStreamGetCaptureInfo
#undef cudaGraphInstantiate

#define EXPORT __attribute__((visibility("default")))

/* ---- the driver ---- */

static void *find(const char *name)
{
    static void *library;
    if (!library) {
        const char *path = getenv("STRATA_SIM_LIBRARY");
        library = dlopen(path ? path : "libstrata-sim.so.0", RTLD_NOW | RTLD_GLOBAL);
    }
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        fprintf(stderr, "sim_cudart: %s: %s\n", name, library ? "missing" : "the simulated driver was not found");
        _Exit(70);
    }
    return function;
}

#define TEXT(name) #name
#define CU(name)   ((__typeof__(&name))find(TEXT(name))) /* cuda.h defines some names as those of a version */

static _Thread_local int device;
static _Thread_local cudaError_t last;

static cudaError_t done(CUresult result)
{
    if (result != CUDA_SUCCESS)
        last = (cudaError_t)result; /* the codes are those of the driver, except for a few that no test needs */
    return (cudaError_t)result;
}

/* The device's primary context is current in the thread. */
static void enter(void)
{
    static CUcontext contexts[16];
    static _Thread_local int current = -1;
    if (current == device)
        return;
    if (!contexts[device]) {
        CU(cuInit)(0);
        CU(cuDevicePrimaryCtxRetain)(&contexts[device], device);
    }
    CU(cuCtxSetCurrent)(contexts[device]);
    current = device;
}

/* ---- devices ---- */

EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    CU(cuInit)(0);
    return done(CU(cuDeviceGetCount)(count));
}

EXPORT cudaError_t cudaGetDevice(int *out)
{
    *out = device;
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int which)
{
    device = which;
    enter();
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int which)
{
    size_t bytes = 0;
    CU(cuInit)(0);
    memset(out, 0, sizeof *out);
    CU(cuDeviceGetName)(out->name, sizeof out->name, which);
    CU(cuDeviceTotalMem)(&bytes, which);
    out->totalGlobalMem = bytes;
    out->major = 9;
    out->multiProcessorCount = 132;
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    out->maxThreadsPerMultiProcessor = 2048;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    return done(CU(cuDriverGetVersion)(version));
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    enter();
    return done(CU(cuCtxSynchronize)());
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int from, int to)
{
    return done(CU(cuDeviceCanAccessPeer)(can, from, to));
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int to, unsigned flags)
{
    (void)to;
    (void)flags;
    return cudaSuccess;
}

/* ---- errors ---- */

EXPORT cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;
    CU(cuGetErrorString)((CUresult)error, &text);
    return text ? text : "unknown error";
}

EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    const char *text = NULL;
    CU(cuGetErrorName)((CUresult)error, &text);
    return text ? text : "unknown error";
}

/* ---- memory ---- */

EXPORT cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    enter();
    return done(CU(cuMemGetInfo)(free, total));
}

EXPORT cudaError_t cudaMalloc(void **out, size_t bytes)
{
    CUdeviceptr address = 0;
    enter();
    const CUresult result = CU(cuMemAlloc)(&address, bytes);
    *out = (void *)address;
    return done(result);
}

EXPORT cudaError_t cudaFree(void *address)
{
    enter();
    return done(CU(cuMemFree)((CUdeviceptr)address));
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                   cudaStream_t stream)
{
    enter();
    if (kind == cudaMemcpyHostToDevice)
        return done(CU(cuMemcpyHtoDAsync)((CUdeviceptr)to, from, bytes, stream));
    if (kind == cudaMemcpyDeviceToHost)
        return done(CU(cuMemcpyDtoHAsync)(to, (CUdeviceptr)from, bytes, stream));
    return done(CU(cuMemcpyDtoDAsync)((CUdeviceptr)to, (CUdeviceptr)from, bytes, stream));
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                       cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return error == cudaSuccess ? done(CU(cuStreamSynchronize)(NULL)) : error;
}

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    enter();
    return done(CU(cuMemsetD8Async)((CUdeviceptr)to, (unsigned char)value, bytes, stream));
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *address)
{
    memset(out, 0, sizeof *out);
    unsigned type = 0;
    CU(cuInit)(0);
    enter();
    if (CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)address) != CUDA_SUCCESS)
        type = 0;
    out->type = type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                             : cudaMemoryTypeUnregistered;
    out->devicePointer = (void *)(uintptr_t)address;
    return cudaSuccess;
}

/* ---- streams and events ---- */

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    enter();
    return done(CU(cuStreamCreateWithPriority)(out, flags, priority));
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    enter();
    return (cudaError_t)CU(cuStreamQuery)(stream);
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    enter();
    return done(CU(cuStreamSynchronize)(stream));
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    enter();
    return done(CU(cuStreamWaitEvent)(stream, event, flags));
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    enter();
    return done(CU(cuStreamIsCapturing)(stream, (CUstreamCaptureStatus *)status));
}

EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                            const cudaGraphEdgeData **edges, size_t *count)
{
    enter();
    return done(CU(cuStreamGetCaptureInfo)(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph, nodes,
                                           (const CUgraphEdgeData **)edges, count));
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enter();
    return done(CU(cuThreadExchangeStreamCaptureMode)((CUstreamCaptureMode *)mode));
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    enter();
    return done(CU(cuStreamBeginCapture_v2)(stream, (CUstreamCaptureMode)mode));
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    enter();
    return done(CU(cuStreamEndCapture)(stream, out));
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    enter();
    return done(CU(cuEventCreate)(out, flags));
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    enter();
    return done(CU(cuEventDestroy)(event));
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    enter();
    return done(CU(cuEventRecord)(event, stream));
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    (void)flags;
    return cudaEventRecord(event, stream);
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    enter();
    return (cudaError_t)CU(cuEventQuery)(event);
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    enter();
    return done(CU(cuEventSynchronize)(event));
}

/* ---- graphs ---- */

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    return done(CU(cuGraphInstantiateWithFlags)(out, graph, flags));
}

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiate(out, graph, flags);
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    enter();
    return done(CU(cuGraphLaunch)(graph, stream));
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return done(CU(cuGraphDestroy)(graph));
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    return done(CU(cuGraphExecDestroy)(graph));
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return done(CU(cuGraphGetNodes)(graph, nodes, count));
}

/* ---- what the compiler's code calls when a library is loaded, and launches ---- */

EXPORT void **__cudaRegisterFatBinary(void *image)
{
    (void)image;
    static void *handle;
    return &handle;
}

#define NOTHING(name)      \
    EXPORT int name(void); \
    EXPORT int name(void)  \
    {                      \
        return 0;          \
    }

NOTHING(__cudaRegisterFatBinaryEnd)
NOTHING(__cudaUnregisterFatBinary)
NOTHING(__cudaRegisterFunction)
NOTHING(__cudaRegisterVar)
NOTHING(__cudaRegisterManagedVar)
NOTHING(__cudaInitModule)
NOTHING(__cudaPushCallConfiguration)
NOTHING(__cudaPopCallConfiguration)
NOTHING(__cudaGetKernel)
NOTHING(__cudaLaunchKernel)

EXPORT cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                    cudaStream_t stream)
{
    (void)kernel, (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    enter();
    return done(CU(cuMemHostAlloc)(out, bytes, flags));
}

EXPORT cudaError_t cudaFreeHost(void *address)
{
    enter();
    return done(CU(cuMemFreeHost)(address));
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *found)
{
    (void)version, (void)flags;
    *out = dlsym(RTLD_DEFAULT, name);
    if (found)
        *found = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    (void)stream;
    *priority = 0;
    return cudaSuccess;
}

/* ---- other processes: an event that is complete ---- */

EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    memset(handle, 0, sizeof *handle);
    return done(CU(cuEventSynchronize)(event));
}

EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *out, cudaIpcEventHandle_t handle)
{
    (void)handle;
    return cudaEventCreateWithFlags(out, cudaEventDisableTiming);
}
