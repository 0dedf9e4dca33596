/* A library that is linked to libcuda, and opened with RTLD_DEEPBIND: its calls go past what was preloaded. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

__attribute__((visibility("default"))) CUresult take_memory(CUdeviceptr *block);

CUresult take_memory(CUdeviceptr *block)
{
    return cuMemAlloc_v2(block, 1 << 20);
}
