/* Calls before cuInit, which the driver refuses, and the program's begin behind them. The output is the same with and
 * without Strata. */
#include "driver_calls.h"

#define MIB ((size_t)1 << 20)

int main(void)
{
    CUdeviceptr block;
    CUcontext context;
    CUmemoryPool pool;
    CUstream stream;
    void *memory;
    size_t bytes, total;
    find_driver();
    printf("memory: %d", DRIVER(cuMemAlloc)(&block, MIB));
    printf(" %d", DRIVER(cuMemAllocAsync)(&block, MIB, 0));
    printf(" %d", DRIVER(cuMemAllocManaged)(&block, MIB, CU_MEM_ATTACH_GLOBAL));
    printf(" %d\n", DRIVER(cuMemAllocHost)(&memory, MIB));
    printf("questions: %d", DRIVER(cuMemGetInfo)(&bytes, &total));
    printf(" %d", DRIVER(cuDeviceTotalMem)(&total, 0));
    printf(" %d\n", DRIVER(cuMemGetAddressRange)(NULL, &bytes, 0x1000));
    printf("others: %d", DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    printf(" %d", DRIVER(cuCtxCreate)(&context, 0, 0));
    printf(" %d", DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    printf(" %d\n", DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, 8 * MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 1, 8 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    printf("behind cuInit: memory\n");
    return 0;
}
