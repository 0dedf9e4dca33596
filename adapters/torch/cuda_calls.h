/* The functions of the CUDA runtime and of the driver that the shim calls. They are found at run time, through what
 * PyTorch has loaded, so that one shim serves each major version of CUDA and links to none. */
#ifndef STRATA_ADAPTERS_TORCH_CUDA_CALLS_H
#define STRATA_ADAPTERS_TORCH_CUDA_CALLS_H

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace strata_torch
{

/* Of the CUDA runtime, as libc10_cuda.so uses it. The types are written out, since later headers overload some. */
struct RuntimeCalls {
    cudaError_t (*MemGetInfo)(size_t *free, size_t *total);
    cudaError_t (*GetLastError)();
    const char *(*GetErrorString)(cudaError_t error);
    cudaError_t (*DeviceSynchronize)();
    cudaError_t (*DeviceEnablePeerAccess)(int device, unsigned flags);
    cudaError_t (*MemcpyAsync)(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
    cudaError_t (*MemcpyPeerAsync)(void *to, int device, const void *from, int from_device, size_t bytes,
                                   cudaStream_t stream);
    cudaError_t (*StreamIsCapturing)(cudaStream_t stream, cudaStreamCaptureStatus *status);
    cudaError_t (*EventCreateWithFlags)(cudaEvent_t *event, unsigned flags);
    cudaError_t (*EventRecord)(cudaEvent_t event, cudaStream_t stream);
    cudaError_t (*EventQuery)(cudaEvent_t event);
    cudaError_t (*EventDestroy)(cudaEvent_t event);
    cudaError_t (*ThreadExchangeStreamCaptureMode)(cudaStreamCaptureMode *mode);
};

/* Throws c10::Error if libc10_cuda.so is not loaded or lacks one. */
const RuntimeCalls &runtime_calls();

/* Of the driver that Strata uses, for memory of other processes and devices. */
struct DriverCalls {
    decltype(&::cuMemAddressReserve) MemAddressReserve;
    decltype(&::cuMemAddressFree) MemAddressFree;
    decltype(&::cuMemMap) MemMap;
    decltype(&::cuMemUnmap) MemUnmap;
    decltype(&::cuMemSetAccess) MemSetAccess;
    decltype(&::cuMemGetAccess) MemGetAccess;
    decltype(&::cuMemRelease) MemRelease;
    decltype(&::cuMemImportFromShareableHandle) MemImportFromShareableHandle;
};

/* Throws c10::Error if the driver cannot be opened. A function that it lacks is NULL. */
const DriverCalls &driver_calls();

/* While it lives, calls that would end another stream's capture are allowed (cudaStreamCaptureModeRelaxed). */
class RelaxedCapture
{
  public:
    RelaxedCapture()
    {
        runtime_calls().ThreadExchangeStreamCaptureMode(&mode_);
    }
    ~RelaxedCapture()
    {
        runtime_calls().ThreadExchangeStreamCaptureMode(&mode_);
    }
    RelaxedCapture(const RelaxedCapture &) = delete;
    RelaxedCapture &operator=(const RelaxedCapture &) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

bool is_capturing(cudaStream_t stream);

} // namespace strata_torch

#endif
