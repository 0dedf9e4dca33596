/* Memory of others and multicast objects, and functions that no hook stands for, of a driver that has all of them. */
#include "wider_calls.h"

#include <unistd.h>

static void use_imports(void)
{
    WIDER(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 12000);
    WIDER(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 12000);
    WIDER(cuMemPoolImportPointer, "cuMemPoolImportPointer", 12000);
    CUipcMemHandle handle = {"of the driver"};
    CUdeviceptr block, pooled;
    CHECK(cuIpcOpenMemHandle_v2_found(&block, handle, 0));
    CHECK(cuMemPoolImportPointer_found(&pooled, NULL, NULL));
    CHECK(cuIpcCloseMemHandle_found(block));
    strcpy(handle.reserved, "foreign");
    printf("a foreign handle: %d\n", cuIpcOpenMemHandle_v2_found(&block, handle, 0));
    strcpy(handle.reserved, "strata1");
    printf("one of a process that is gone: %d\n", cuIpcOpenMemHandle_v2_found(&block, handle, 0));
}

static void use_external(void)
{
    WIDER(cuImportExternalMemory, "cuImportExternalMemory", 12000);
    WIDER(cuDestroyExternalMemory, "cuDestroyExternalMemory", 12000);
    WIDER(cuGraphicsMapResources_ptsz, "cuGraphicsMapResources", 12000);
    WIDER(cuGraphicsUnmapResources_ptsz, "cuGraphicsUnmapResources", 12000);
    WIDER(cuGraphicsResourceGetMappedPointer_v2, "cuGraphicsResourceGetMappedPointer", 12000);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = dup(0), .size = 32 * MIB};
    CUexternalMemory external;
    CUgraphicsResource resource = (CUgraphicsResource)(uintptr_t)0x55; /* NOLINT: a handle */
    CUdeviceptr block;
    size_t bytes;
    CHECK(cuImportExternalMemory_found(&external, &description));
    CHECK(cuGraphicsMapResources_ptsz_found(1, &resource, 0));
    CHECK(cuGraphicsResourceGetMappedPointer_v2_found(&block, &bytes, resource));
    CHECK(cuGraphicsUnmapResources_ptsz_found(1, &resource, 0));
    CHECK(cuDestroyExternalMemory_found(external));
}

static void use_multicast(void)
{
    WIDER(cuMulticastCreate, "cuMulticastCreate", 12010);
    WIDER(cuMemRelease, "cuMemRelease", 12000);
    const CUmulticastObjectProp properties = {.numDevices = 2, .size = 64 * MIB};
    CUmemGenericAllocationHandle handle;
    CHECK(cuMulticastCreate_found(&handle, &properties));
    CHECK(cuMemRelease_found(handle));
}

double cuNewSum(int a, double b, long c, double d, long e, long f, long g, long h, long i);
double first_sum(int a);

static void call_what_has_no_hook(void)
{
    WIDER(cuMemAlloc, "cuMemAlloc", 2000);
    WIDER(cuMemMapArrayAsync_ptsz, "cuMemMapArrayAsync", 12000);
    WIDER(cuNewSum, "cuNewSum", 13000);
    WIDER(first_sum, "cuNewSum", 12000);
    CUdeviceptr_v1 first;
    CHECK(cuMemAlloc_found(&first, 17));
    CHECK(cuMemMapArrayAsync_ptsz_found(NULL, 3, 0));
    printf("first form %u, sum %.1f", first, cuNewSum_found(1, .5, 2, .25, 3, 4, 5, 6, 7));
    printf(" and %.1f\n", cuNewSum_found(1, 1, 1, 1, 1, 1, 1, 1, 1));
    printf("the form of before: %.1f\n", first_sum_found(3));
    printf("the same by either way: %s\n", dlsym(open_cuda(), "cuNewSum") == ask("cuNewSum", 13000) ? "yes" : "no");
}

/* It is passed on as it is, with no stand-in: what it gives is called by addresses. */
static void get_an_export_table(void)
{
    Dl_info where;
    void *get_table = ask("cuGetExportTable", 13000);
    const char *slash = dladdr(get_table, &where) ? strrchr(where.dli_fname, '/') : NULL;
    printf("the export table is of %s\n", slash ? slash + 1 : "nothing");
}

int main(void)
{
    begin();
    get_an_export_table();
    use_imports();
    use_external();
    use_multicast();
    call_what_has_no_hook();
    return 0;
}
