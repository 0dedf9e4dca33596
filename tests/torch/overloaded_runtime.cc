/* Compiles where the CUDA runtime's header overloads its functions, as that of 13.2 does with cudaMemcpyAsync: the shim
 * is compiled with the headers that a user has. */
#include <cuda_runtime_api.h>

struct overload;
cudaError_t cudaMemGetInfo(overload *);
cudaError_t cudaGetLastError(overload *);
cudaError_t cudaGetErrorString(overload *);
cudaError_t cudaDeviceSynchronize(overload *);
cudaError_t cudaDeviceEnablePeerAccess(overload *);
cudaError_t cudaMemcpyAsync(overload *);
cudaError_t cudaMemcpyPeerAsync(overload *);
cudaError_t cudaStreamIsCapturing(overload *);
cudaError_t cudaEventCreateWithFlags(overload *);
cudaError_t cudaEventRecord(overload *);
cudaError_t cudaEventQuery(overload *);
cudaError_t cudaEventDestroy(overload *);
cudaError_t cudaThreadExchangeStreamCaptureMode(overload *);

#include "adapters/torch/cuda_calls.h"

int main()
{
    return strata_torch::runtime_calls().DeviceSynchronize() == cudaSuccess ? 0 : 1;
}
