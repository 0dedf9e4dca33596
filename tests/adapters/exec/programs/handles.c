/* What a program hears that takes its memory for mappings of its own, as libraries do that look for a handle behind
 * each address; and what it is told of handles. The output is the same with and without Strata. */
#include "driver_calls.h"

#include <stdint.h>

#define MIB ((size_t)1 << 20)

static CUdeviceptr block;

static void take_for_a_mapping(const char *name, CUdeviceptr address)
{
    CUmemGenericAllocationHandle handle = 0;
    const CUresult retained =
        DRIVER(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)address); /* NOLINT: of the device */
    printf("%s: handle %d", name, (int)retained);
    if (retained == CUDA_SUCCESS)
        CHECK(DRIVER(cuMemRelease)(handle));
    printf(", unmapped %d\n", (int)DRIVER(cuMemUnmap)(address, 2 * MIB));
}

static CUresult set_access(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = flags};
    return DRIVER(cuMemSetAccess)(address, bytes, &access, 1);
}

/* What is forbidden in a block would be in the memory of other blocks, too. */
static void forbid_access(void)
{
    enum { BYTES = 64 << 20 }; /* whole pieces of physical memory */
    CUdeviceptr large, freed;
    CHECK(DRIVER(cuMemAlloc)(&large, BYTES));
    CHECK(DRIVER(cuMemAlloc)(&freed, BYTES));
    CHECK(DRIVER(cuMemFree)(freed));
    printf("forbidden: block %d", (int)set_access(large, BYTES, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    printf(", freed %d", (int)set_access(freed, BYTES, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    printf(", then written: %d\n", (int)DRIVER(cuMemsetD8)(large, 1, BYTES));
    CHECK(DRIVER(cuMemFree)(large));
}

static void say_handles(const char *name, CUdeviceptr address)
{
    unsigned long long types = 0, of_several = 0;
    int legacy = -1, legacy_of_several = -1; /* a boolean is written whole */
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *values[] = {&of_several, &legacy_of_several};
    CHECK(DRIVER(cuPointerGetAttribute)(&types, attributes[0], address));
    CHECK(DRIVER(cuPointerGetAttribute)(&legacy, attributes[1], address));
    CHECK(DRIVER(cuPointerGetAttributes)(2, attributes, values, address));
    printf("%s: handle types %llu and %llu, IPC %d and %d\n", name, types, of_several, legacy, legacy_of_several);
}

/* All but where its mapping lies, and handles, which say_handles asks for. */
static void say_attributes(const char *name, CUdeviceptr address)
{
    static const CUpointer_attribute asked[] = {
        CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,    CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_MAPPED,         CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    };
    CUcontext current;
    CHECK(DRIVER(cuCtxGetCurrent)(&current));
    printf("%s:", name);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        unsigned long long value = 0;
        const CUresult result = DRIVER(cuPointerGetAttribute)(&value, asked[i], address);
        if (asked[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID)
            value = value != 0;
        if (value == address || value == block)
            value = value == block ? 1 : 2;
        if (value == (uintptr_t)current)
            value = 3;
        printf(" %d: %d %llu", asked[i], result, value);
    }
    printf("\n");
}

/* A block is no larger than it was asked for, whatever is mapped behind it. */
static void ask_behind_a_block(void)
{
    CUdeviceptr small, start;
    size_t bytes;
    unsigned type;
    CHECK(DRIVER(cuMemAlloc)(&small, MIB));
    printf("behind a block: range %d", DRIVER(cuMemGetAddressRange)(&start, &bytes, small + MIB));
    printf(", type %d\n", DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, small + MIB));
    CHECK(DRIVER(cuMemFree)(small));
}

/* The program's own mapping is one, beside the stack's. */
static void map_and_unmap(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    CHECK(DRIVER(cuMemCreate)(&handle, 2 * MIB, &properties, 0));
    CHECK(DRIVER(cuMemAddressReserve)(&range, 2 * MIB, 0, 0, 0));
    CHECK(DRIVER(cuMemMap)(range, 2 * MIB, 0, handle, 0));
    CHECK(set_access(range, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK(DRIVER(cuMemsetD8)(range, 1, 2 * MIB));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuMemRelease)(handle));
    CHECK(DRIVER(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)range)); /* NOLINT: of the device */
    CHECK(DRIVER(cuMemRelease)(handle));
    CHECK(DRIVER(cuMemUnmap)(range, 2 * MIB));
    CHECK(DRIVER(cuMemAddressFree)(range, 2 * MIB));
}

int main(void)
{
    CUdeviceptr freed;
    unsigned char byte = 0;
    begin();
    ask_behind_a_block();
    CHECK(DRIVER(cuMemAlloc)(&block, 4 * MIB));
    CHECK(DRIVER(cuMemAlloc)(&freed, 4 * MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 7, 4 * MIB));
    CHECK(DRIVER(cuMemFree)(freed));
    say_attributes("block", block);
    say_attributes("inside", block + MIB);
    say_attributes("freed", freed);
    say_handles("block", block);
    say_handles("inside", block + MIB);
    take_for_a_mapping("block", block);
    take_for_a_mapping("inside", block + 2 * MIB);
    take_for_a_mapping("freed", freed);
    map_and_unmap();
    forbid_access();
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block, 1));
    printf("first byte: %d\n", byte);
    CHECK(DRIVER(cuMemFree)(block));
    return 0;
}
