/* A driver in a namespace of its own (dlmopen), which shares no library with the program's. */
#define _GNU_SOURCE
#define WAY WAY_RUNTIME
#include "driver_calls.h"

#define GET(library, symbol)                     \
    __typeof__(&symbol) symbol##_found;          \
    void *symbol##_at = dlsym(library, #symbol); \
    memcpy(&symbol##_found, &symbol##_at, sizeof symbol##_at)

int main(void)
{
    void *library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    (void)begin;
    if (!library) {
        printf("%s\n", dlerror());
        return 3;
    }
    GET(library, cuInit);
    GET(library, cuDevicePrimaryCtxRetain);
    GET(library, cuCtxSetCurrent);
    GET(library, cuMemAlloc_v2);
    GET(library, cuMemFree_v2);
    CUcontext context;
    CUdeviceptr block;
    CHECK(cuInit_found(0));
    CHECK(cuDevicePrimaryCtxRetain_found(&context, 0));
    CHECK(cuCtxSetCurrent_found(context));
    CHECK(cuMemAlloc_v2_found(&block, 1 << 20));
    CHECK(cuMemFree_v2_found(block));
    printf("memory in another namespace\n");
    return 0;
}
