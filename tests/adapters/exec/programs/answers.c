/* What a program hears about its memory. The output is the same with and without Strata, unless a budget is given. */
#include "driver_calls.h"

#define MIB ((size_t)1 << 20)

static void print_info(const char *when)
{
    size_t free_bytes, total;
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    printf("%s: %zu of %zu MiB free\n", when, free_bytes / MIB, total / MIB);
}

static void ask_about_address(CUdeviceptr block, size_t bytes)
{
    CUdeviceptr start = 0, range = 0;
    size_t size = 0, range_size = 0;
    unsigned type = 0;
    CHECK(DRIVER(cuMemGetAddressRange)(&start, &size, block + bytes / 2));
    printf("address range: begins %s, %zu bytes\n", start == block ? "with the block" : "elsewhere", size);
    CHECK(DRIVER(cuMemGetAddressRange)(NULL, &size, block));
    CHECK(DRIVER(cuPointerGetAttribute)(&range, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + 1));
    CHECK(DRIVER(cuPointerGetAttribute)(&range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block));
    CHECK(DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
    printf("attributes: begins %s, %zu bytes, type %u\n", range == block ? "with the block" : "elsewhere", range_size,
           type);
}

static void free_wrongly(CUdeviceptr block)
{
    printf("free inside: %d\n", DRIVER(cuMemFree)(block + 256));
    printf("free: %d\n", DRIVER(cuMemFree)(block));
    printf("free again: %d\n", DRIVER(cuMemFree)(block));
    printf("free of nothing: %d\n", DRIVER(cuMemFree)(0));
    printf("free of a foreign address: %d\n", DRIVER(cuMemFree)(0x1000));
}

static void mix_families(void)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAllocAsync)(&block, 2 * MIB, 0));
    CHECK(DRIVER(cuMemsetD8Async)(block, 1, 2 * MIB, 0));
    CHECK(DRIVER(cuCtxSynchronize)());
    printf("free of stream-ordered memory: %d\n", DRIVER(cuMemFree)(block));
}

static void ask_for_too_much(void)
{
    CUdeviceptr block = 0;
    size_t free_bytes, total;
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    printf("more than there is: %d\n", DRIVER(cuMemAlloc)(&block, total + 2 * MIB));
    printf("nothing: %d\n", DRIVER(cuMemAlloc)(&block, 0));
    block = 1;
    printf("nothing on a stream: %d", DRIVER(cuMemAllocAsync)(&block, 0, 0));
    printf(", %s, free: %d\n", block ? "an address" : "no address", DRIVER(cuMemFreeAsync)(block, 0));
    printf("into nothing: %d\n", DRIVER(cuMemAlloc)(NULL, 2 * MIB));
}

static void use_managed_and_pitched(void)
{
    CUdeviceptr managed, pitched;
    size_t pitch;
    CHECK(DRIVER(cuMemAllocManaged)(&managed, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(DRIVER(cuMemAllocPitch)(&pitched, &pitch, 1000, 100, 4));
    printf("pitch: %s\n", pitch >= 1000 ? "right" : "wrong");
    CHECK(DRIVER(cuMemFree)(managed));
    CHECK(DRIVER(cuMemFree)(pitched));
}

static void map_own_memory(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    CHECK(DRIVER(cuMemCreate)(&handle, 32 * MIB, &properties, 0));
    CHECK(DRIVER(cuMemAddressReserve)(&range, 32 * MIB, 0, 0, 0));
    CHECK(DRIVER(cuMemMap)(range, 32 * MIB, 0, handle, 0));
    CHECK(DRIVER(cuMemRelease)(handle));
    print_info("mapped");
    CHECK(DRIVER(cuMemUnmap)(range, 32 * MIB));
    CHECK(DRIVER(cuMemAddressFree)(range, 32 * MIB));
    print_info("unmapped");
}

int main(void)
{
    CUdeviceptr block;
    unsigned char byte = 0;
    size_t total;
    begin();
    CHECK(DRIVER(cuDeviceTotalMem)(&total, 0));
    printf("device: %zu MiB\n", total / MIB);
    print_info("at first");
    CHECK(DRIVER(cuMemAlloc)(&block, 64 * MIB));
    print_info("with 64 MiB");
    CHECK(DRIVER(cuMemsetD8)(block, 7, 64 * MIB));
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block + 64 * MIB - 1, 1));
    printf("last byte: %d\n", byte);
    ask_about_address(block, 64 * MIB);
    free_wrongly(block);
    print_info("after the free");
    mix_families();
    ask_for_too_much();
    use_managed_and_pitched();
    map_own_memory();
    print_info("at last");
    return 0;
}
