/* External memory, of a driver that has it (wider_driver.c), as another API exports it, and memory that the driver
 * takes for itself: `external NAME`. What each prints is the same with and without Strata, but for what is free. */
#include "ways.h"
#include "wider_calls.h"

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

static size_t free_mebibytes(void)
{
    size_t free_bytes, total;
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    return free_bytes / MIB;
}

/* A file descriptor stands for the memory: another API's would be no other for a program. */
static int export_memory(void)
{
    const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(file < 0);
    return file;
}

static CUresult import(size_t bytes, int file, CUexternalMemory *out)
{
    WIDER(cuImportExternalMemory, "cuImportExternalMemory", 12000);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = file, .size = bytes};
    return cuImportExternalMemory_found(out, &description);
}

static bool is_open(int file)
{
    return fcntl(file, F_GETFD) >= 0;
}

static CUresult destroy(CUexternalMemory memory)
{
    WIDER(cuDestroyExternalMemory, "cuDestroyExternalMemory", 12000);
    return cuDestroyExternalMemory_found(memory);
}

/* ---- ways ---- */

static void import_and_destroy(void)
{
    CUexternalMemory memory;
    CHECK(import(64 * MIB, export_memory(), &memory));
    printf("imported: %zu MiB free, ", free_mebibytes());
    CHECK(destroy(memory));
    printf("destroyed: %zu, ", free_mebibytes());
    printf("again: %d, %zu\n", destroy(memory), free_mebibytes());
}

/* What is mapped is no memory of its own. */
static void map_a_buffer(void)
{
    WIDER(cuExternalMemoryGetMappedBuffer, "cuExternalMemoryGetMappedBuffer", 12000);
    WIDER(cuExternalMemoryGetMappedMipmappedArray, "cuExternalMemoryGetMappedMipmappedArray", 12000);
    WIDER(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 12000);
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC whole = {.size = 64 * MIB};
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC image = {
        .arrayDesc = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}, .numLevels = 1};
    CUexternalMemory memory;
    CUdeviceptr buffer;
    CUmipmappedArray array;
    CHECK(import(64 * MIB, export_memory(), &memory));
    CHECK(cuExternalMemoryGetMappedBuffer_found(&buffer, memory, &whole));
    CHECK(cuExternalMemoryGetMappedMipmappedArray_found(&array, memory, &image));
    printf("mapped: %zu MiB free, ", free_mebibytes());
    CHECK(cuMipmappedArrayDestroy_found(array));
    CHECK(DRIVER(cuMemFree)(buffer));
    printf("freed: %zu, ", free_mebibytes());
    CHECK(destroy(memory));
    printf("destroyed: %zu\n", free_mebibytes());
}

/* More than the budget has; the program goes on, and its file is its own. */
static void import_too_much(void)
{
    CUexternalMemory first, second = NULL;
    CUdeviceptr block;
    const int file = export_memory();
    CHECK(import(64 * MIB, export_memory(), &first));
    printf("a second one: %d, ", import(64 * MIB, file, &second));
    printf("its file is %s, ", is_open(file) ? "open" : "closed");
    printf("64 MiB of cuMemAlloc: %d, ", DRIVER(cuMemAlloc)(&block, 64 * MIB));
    CHECK(destroy(first));
    printf("behind the first one's end: %d\n", import(64 * MIB, file, &second));
}

static void import_no_file(void)
{
    CUexternalMemory memory;
    const size_t before = free_mebibytes();
    printf("no file: %d, ", import(64 * MIB, -1, &memory));
    printf("no size: %d, ", import(0, export_memory(), &memory));
    printf("%zu MiB less free\n", before - free_mebibytes());
}

static void end_its_context(void)
{
    CUcontext own, primary;
    CUexternalMemory memory;
    CHECK(DRIVER(cuCtxGetCurrent)(&primary));
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    CHECK(import(64 * MIB, export_memory(), &memory));
    CHECK(DRIVER(cuCtxDestroy)(own));
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
    printf("destroyed: %zu MiB free, ", free_mebibytes());
    CHECK(import(64 * MIB, export_memory(), &memory));
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
    printf("reset: %zu, ", free_mebibytes());
    CHECK(import(64 * MIB, export_memory(), &memory));
    printf("imported: %zu\n", free_mebibytes());
}

CUresult cuNewHidden(size_t bytes);

static void have_hidden_memory(void)
{
    CUdeviceptr block;
    WIDER(cuNewHidden, "cuNewHidden", 13000);
    CHECK(cuNewHidden_found(500 * MIB));
    printf("%zu MiB free, ", free_mebibytes());
    printf("1000 MiB: %d\n", DRIVER(cuMemAlloc)(&block, 1000 * MIB));
}

static const named_way ways[] = {
    {"import", import_and_destroy}, {"map", map_a_buffer},        {"too-much", import_too_much},
    {"no-file", import_no_file},    {"context", end_its_context}, {"hidden", have_hidden_memory},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
