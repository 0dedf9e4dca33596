// CUDA's functions for program.cc: they count their calls.
#include <cuda_runtime_api.h>

int original_calls();

static int calls;

int original_calls()
{
    return calls;
}

#define ORIGINAL(name, parameters, result)           \
    extern "C" cudaError_t CUDARTAPI name parameters \
    {                                                \
        calls++;                                     \
        return result;                               \
    }

ORIGINAL(cudaFree, (void *), cudaSuccess)
ORIGINAL(cudaMallocPitch, (void **, size_t *, size_t, size_t), cudaErrorNotSupported)
ORIGINAL(cudaMallocAsync, (void **, size_t, cudaStream_t), cudaErrorNotSupported)
ORIGINAL(cudaFreeAsync, (void *, cudaStream_t), cudaErrorNotSupported)
ORIGINAL(cudaMallocFromPoolAsync, (void **, size_t, cudaMemPool_t, cudaStream_t), cudaErrorNotSupported)
extern "C" cudaError_t CUDARTAPI cudaGetLastError()
{
    return cudaSuccess;
}

extern "C" int cuMemFree_v2(unsigned long long)
{
    calls++;
    return 1;
}
