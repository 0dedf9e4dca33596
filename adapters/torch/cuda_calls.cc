#include "cuda_calls.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <strata/info.h>

namespace strata_torch
{

namespace
{

template <typename Function> void find(void *library, const char *name, Function *function)
{
    *function = reinterpret_cast<Function>(dlsym(library, name));
}

template <typename Function> void need(void *library, const char *name, Function *function)
{
    find(library, name, function);
    TORCH_CHECK(*function, "Strata: the CUDA runtime that PyTorch has loaded lacks ", name);
}

/* dlsym on a library also looks into those that it needs: the CUDA runtime is one of them. */
RuntimeCalls find_runtime_calls()
{
    void *library = dlopen("libc10_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    TORCH_CHECK(library, "Strata: libc10_cuda.so is not loaded; import torch first, in a build with CUDA");
    RuntimeCalls calls;
    need(library, "cudaMemGetInfo", &calls.MemGetInfo);
    need(library, "cudaGetLastError", &calls.GetLastError);
    need(library, "cudaGetErrorString", &calls.GetErrorString);
    need(library, "cudaDeviceSynchronize", &calls.DeviceSynchronize);
    need(library, "cudaDeviceEnablePeerAccess", &calls.DeviceEnablePeerAccess);
    need(library, "cudaMemcpyAsync", &calls.MemcpyAsync);
    need(library, "cudaMemcpyPeerAsync", &calls.MemcpyPeerAsync);
    need(library, "cudaStreamIsCapturing", &calls.StreamIsCapturing);
    need(library, "cudaEventCreateWithFlags", &calls.EventCreateWithFlags);
    need(library, "cudaEventRecord", &calls.EventRecord);
    need(library, "cudaEventQuery", &calls.EventQuery);
    need(library, "cudaEventDestroy", &calls.EventDestroy);
    need(library, "cudaThreadExchangeStreamCaptureMode", &calls.ThreadExchangeStreamCaptureMode);
    return calls;
}

DriverCalls find_driver_calls()
{
    strata_driver_info info;
    TORCH_CHECK(strata_driver_get_info(&info) == STRATA_SUCCESS, "Strata: ", strata_last_error()->message);
    void *library = dlopen(info.library, RTLD_LAZY);
    TORCH_CHECK(library, "Strata: ", dlerror());
    DriverCalls calls;
    find(library, "cuMemAddressReserve", &calls.MemAddressReserve);
    find(library, "cuMemAddressFree", &calls.MemAddressFree);
    find(library, "cuMemMap", &calls.MemMap);
    find(library, "cuMemUnmap", &calls.MemUnmap);
    find(library, "cuMemSetAccess", &calls.MemSetAccess);
    find(library, "cuMemGetAccess", &calls.MemGetAccess);
    find(library, "cuMemRelease", &calls.MemRelease);
    find(library, "cuMemImportFromShareableHandle", &calls.MemImportFromShareableHandle);
    return calls;
}

} // namespace

const RuntimeCalls &runtime_calls()
{
    static const RuntimeCalls calls = find_runtime_calls();
    return calls;
}

const DriverCalls &driver_calls()
{
    static const DriverCalls calls = find_driver_calls();
    return calls;
}

bool is_capturing(cudaStream_t stream)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (runtime_calls().StreamIsCapturing(stream, &status) != cudaSuccess) {
        /* The legacy stream, while another one is captured: cudaErrorStreamCaptureImplicit. */
        runtime_calls().GetLastError();
        return true;
    }
    return status != cudaStreamCaptureStatusNone;
}

} // namespace strata_torch

/* PyTorch's header calls it in an inline function. Hidden, so that the shim does not need a libcudart of its own. */
extern "C" __attribute__((visibility("hidden"))) cudaError_t CUDARTAPI cudaMemGetInfo(size_t *free, size_t *total)
{
    return strata_torch::runtime_calls().MemGetInfo(free, total);
}
