/* Several contexts of one device, and what belongs to them, by name: `contexts NAME`. */
#include "driver_calls.h"

#define MIB ((size_t)1 << 20)

/* ---- a budget ---- */

static CUdeviceptr take(size_t mebibytes)
{
    CUdeviceptr block = 0;
    printf(" %d", DRIVER(cuMemAlloc)(&block, mebibytes * MIB));
    return block;
}

static void enter_primary(void)
{
    CUcontext primary;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
}

/* A context that is older than all memory keeps its part while primary ones come and go. */
static void keep_memory_beside_primary_contexts(void)
{
    CUcontext own;
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0)); /* that of begin() */
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    const CUdeviceptr kept = take(60);
    for (int i = 0; i < 3; i++) {
        enter_primary();
        take(60);
        take(30);
        CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    }
    CHECK(DRIVER(cuCtxSetCurrent)(own));
    take(60);
    CHECK(DRIVER(cuMemFree)(kept));
    take(60);
    CHECK(DRIVER(cuCtxDestroy)(own));
    enter_primary();
    take(90);
    printf("\n");
}

/* Physical memory outlives the primary context. */
static void keep_a_handle_behind_resets(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CHECK(DRIVER(cuMemCreate)(&handle, 60 * MIB, &properties, 0));
    for (int i = 0; i < 3; i++) {
        take(30);
        take(30);
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        enter_primary();
    }
    CHECK(DRIVER(cuMemRelease)(handle));
    take(90);
    printf("\n");
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {
    {"kept-memory", keep_memory_beside_primary_contexts},
    {"kept-handle", keep_a_handle_behind_resets},
};

int main(int count, char **arguments)
{
    begin();
    for (size_t i = 0; count > 1 && i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(ways[i].name, arguments[1]) == 0) {
            ways[i].run();
            return 0;
        }
    printf("unknown way\n");
    return 3;
}
