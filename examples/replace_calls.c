/* A program on CUDA's driver API that takes Strata by one line, the last include. Nothing else of it names Strata; its
 * memory has what STRATA_STACK says:
 *
 *     STRATA_STACK="budget(limit=32MiB), pool" example_replace_calls
 *
 * It allocates blocks of 4 MiB until a call is refused, fills each on one of three streams, and frees all. A free needs
 * no word about the streams: it waits for the device, as CUDA's own. docs/replace.md. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#include <strata/replace_cuda_driver.h>

enum { MOST = 64, STREAMS = 3, BYTES = 4 << 20 };

static void check(CUresult result)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "the driver answers %s\n", name ? name : "an unknown error");
    exit(2);
}

static void begin(CUstream streams[STREAMS])
{
    CUcontext context;
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0)); /* Strata works in this context */
    check(cuCtxSetCurrent(context));
    for (int i = 0; i < STREAMS; i++)
        check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

/* Returns how many blocks there were. */
static int take_all(CUdeviceptr blocks[MOST], const CUstream streams[STREAMS])
{
    int count = 0;
    while (count < MOST && cuMemAlloc(&blocks[count], BYTES) == CUDA_SUCCESS) {
        check(cuMemsetD8Async(blocks[count], (unsigned char)count, BYTES, streams[count % STREAMS]));
        count++;
    }
    return count;
}

static void free_all(const CUdeviceptr *blocks, int count)
{
    for (int i = 0; i < count; i++)
        check(cuMemFree(blocks[i]));
}

int main(void)
{
    static CUdeviceptr blocks[MOST];
    static unsigned char host[BYTES];
    CUstream streams[STREAMS];
    size_t free_bytes, total;
    begin(streams);
    const int count = take_all(blocks, streams);
    printf("%d blocks of 4 MiB\n", count);
    for (int i = 0; i < count; i++) {
        check(cuStreamSynchronize(streams[i % STREAMS]));
        check(cuMemcpyDtoH(host, blocks[i], BYTES));
        if (host[0] != i || host[BYTES - 1] != i)
            return 1;
    }
    free_all(blocks, count);
    check(cuMemGetInfo(&free_bytes, &total));
    printf("%zu of %zu MiB are free\n", free_bytes >> 20, total >> 20);
    for (int i = 0; i < STREAMS; i++)
        check(cuStreamDestroy(streams[i]));
    return 0;
}
