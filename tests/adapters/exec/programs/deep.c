/* A library that is linked to libcuda, and opened with RTLD_DEEPBIND: its calls go past what was preloaded. With BEGINS
 * it only initializes the driver. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

__attribute__((visibility("default"))) CUresult take_memory(CUdeviceptr *block);

CUresult take_memory(CUdeviceptr *block)
{
#if defined BEGINS
    *block = 0;
    return cuInit(0);
#else
    return cuMemAlloc_v2(block, 1 << 20);
#endif
}
