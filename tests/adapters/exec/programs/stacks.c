/* Memory by callers that have names: a large block that stays, small ones that go, and frees of what is no block. */
#include "driver_calls.h"

#define MIB ((size_t)1 << 20)

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, bytes));
    return block;
}

static __attribute__((noinline)) CUdeviceptr take_large(void)
{
    return take(8 * MIB);
}

static __attribute__((noinline)) CUdeviceptr take_small(void)
{
    return take(1 * MIB);
}

static __attribute__((noinline)) void free_again(CUdeviceptr block)
{
    printf("again: %d", DRIVER(cuMemFree)(block));
    printf(" %d\n", DRIVER(cuMemFree)(block));
}

static __attribute__((noinline)) void free_inside(CUdeviceptr block)
{
    printf("inside: %d\n", DRIVER(cuMemFree)(block + 512));
}

static __attribute__((noinline)) void free_foreign(void)
{
    printf("foreign: %d\n", DRIVER(cuMemFree)((CUdeviceptr)0x123456789000));
}

int main(void)
{
    CUdeviceptr small[3] = {0};
    begin();
    const CUdeviceptr large = take_large();
    for (volatile int i = 0; i < 3; i++)
        small[i] = take_small();
    for (int i = 0; i < 3; i++)
        CHECK(DRIVER(cuMemFree)(small[i]));
    free_again(small[0]);
    free_inside(large);
    free_foreign();
    return 0;
}
