/* A program that is linked to libcuda, and its memory. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdio.h>

int main(void)
{
    CUcontext context;
    CUdeviceptr block;
    size_t free_bytes, total;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemAlloc_v2(&block, 1 << 21) || cuMemGetInfo_v2(&free_bytes, &total) || cuMemFree_v2(block))
        return 1;
    printf("%zu MiB\n", total >> 20);
    return 0;
}
