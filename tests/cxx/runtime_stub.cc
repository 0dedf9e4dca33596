/* What the headers of CCCL and RMM refer to of the CUDA runtime, which the tests do not link: a runtime without a
 * device. Only paths that the tests do not take call it. */
#include <cuda_runtime_api.h>

extern "C" {

const char *cudaGetErrorName(cudaError_t)
{
    return "cudaErrorNoDevice";
}

const char *cudaGetErrorString(cudaError_t)
{
    return "no CUDA-capable device is detected";
}

cudaError_t cudaGetLastError()
{
    return cudaErrorNoDevice;
}

cudaError_t cudaMalloc(void **, size_t)
{
    return cudaErrorNoDevice;
}

cudaError_t cudaFree(void *)
{
    return cudaErrorNoDevice;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaErrorNoDevice;
}

} // extern "C"
