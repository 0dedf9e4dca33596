/* A program that is linked to libcuda, and whose calls another library takes (patcher.c). */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdio.h>

int patch_program(void);
int count_calls(void);

int main(void)
{
    CUcontext context;
    CUdeviceptr block;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    const int slots = patch_program();
    const CUresult result = cuMemAlloc_v2(&block, 1 << 20);
    printf("%s, %d call, memory: %d\n", slots ? "patched" : "not patched", count_calls(), result);
    return 0;
}
