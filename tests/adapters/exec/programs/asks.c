/* As a library: asks the driver for memory of each kind that no stack gives. As a program: loads the library, has it
 * ask, and asks for host memory itself. What is left at the end is 1 MiB of host memory of each. */
#include "wider_calls.h"

void ask_for_all(void);

#if defined AS_LIBRARY

static void ask_for_host_memory(void)
{
    WIDER(cuMemHostAlloc, "cuMemHostAlloc", 12000);
    WIDER(cuMemFreeHost, "cuMemFreeHost", 12000);
    void *kept, *memory;
    CHECK(cuMemHostAlloc_found(&kept, MIB, 0));
    CHECK(cuMemHostAlloc_found(&memory, 2 * MIB, 0));
    CHECK(cuMemFreeHost_found(memory));
}

static void ask_for_addresses(void)
{
    WIDER(cuMemAllocManaged, "cuMemAllocManaged", 12000);
    WIDER(cuMemAllocPitch_v2, "cuMemAllocPitch", 12000);
    WIDER(cuMemFree_v2, "cuMemFree", 12000);
    CUdeviceptr managed, pitched;
    size_t pitch;
    CHECK(cuMemAllocManaged_found(&managed, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAllocPitch_v2_found(&pitched, &pitch, 1024, 1024, 4));
    CHECK(cuMemFree_v2_found(managed));
    CHECK(cuMemFree_v2_found(pitched));
}

static void ask_for_an_array(void)
{
    WIDER(cuArrayCreate_v2, "cuArrayCreate", 12000);
    WIDER(cuArrayDestroy, "cuArrayDestroy", 12000);
    const CUDA_ARRAY_DESCRIPTOR properties = {
        .Width = 1024, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    CHECK(cuArrayCreate_v2_found(&array, &properties));
    CHECK(cuArrayDestroy_found(array));
}

static void ask_a_pool(void)
{
    WIDER(cuMemPoolCreate, "cuMemPoolCreate", 12000);
    WIDER(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 12000);
    WIDER(cuMemFreeAsync, "cuMemFreeAsync", 12000);
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool;
    CUdeviceptr block;
    CHECK(cuMemPoolCreate_found(&pool, &properties));
    CHECK(cuMemAllocFromPoolAsync_found(&block, 8 * MIB, pool, 0));
    CHECK(cuMemFreeAsync_found(block, 0));
}

static void ask_for_physical_memory(void)
{
    WIDER(cuMemCreate, "cuMemCreate", 12000);
    WIDER(cuMemRelease, "cuMemRelease", 12000);
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate_found(&handle, 16 * MIB, &properties, 0));
    CHECK(cuMemRelease_found(handle));
}

__attribute__((visibility("default"))) void ask_for_all(void)
{
    (void)begin;
    ask_for_host_memory();
    ask_for_addresses();
    ask_for_an_array();
    ask_a_pool();
    ask_for_physical_memory();
}

#else

int main(int count, char **arguments)
{
    begin();
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    void *found = library ? dlsym(library, "ask_for_all") : NULL;
    void (*ask_library)(void), *memory;
    if (!found) {
        printf("no library\n");
        return 3;
    }
    memcpy(&ask_library, &found, sizeof found);
    ask_library();
    WIDER(cuMemHostAlloc, "cuMemHostAlloc", 12000);
    CHECK(cuMemHostAlloc_found(&memory, MIB, 0));
    dlclose(library); /* its memory is there as before */
    printf("asked\n");
    return 0;
}

#endif
