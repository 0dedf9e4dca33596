/* Kinds of memory beside what cuMemAlloc gives, and the rules of accounting, by name: `kinds NAME`. What each prints is
 * the same with and without Strata, unless a budget is given. */
#include "driver_calls.h"
#include "ways.h"

#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static size_t free_mebibytes(void)
{
    size_t free_bytes, total;
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    return free_bytes / MIB;
}

/* ---- host memory ---- */

static void use_host_memory(void)
{
    void *first, *second, *own;
    CHECK(posix_memalign(&own, 4096, 4 * MIB));
    CHECK(DRIVER(cuMemAllocHost)(&first, MIB));
    CHECK(DRIVER(cuMemHostAlloc)(&second, 2 * MIB, 0));
    CHECK(DRIVER(cuMemHostRegister)(own, 4 * MIB, 0));
    printf("registered again: %d\n", DRIVER(cuMemHostRegister)(own, 4 * MIB, 0));
    CHECK(DRIVER(cuMemHostUnregister)(own));
    CHECK(DRIVER(cuMemFreeHost)(second));
    printf("freed again: %d\n", DRIVER(cuMemFreeHost)(second));
    free(own);
}

/* Ends with its context, but for what was made in another one. */
static void end_a_context_with_host_memory(void)
{
    CUcontext own, primary;
    void *kept, *gone, *mine;
    CHECK(posix_memalign(&mine, 4096, 4 * MIB));
    CHECK(DRIVER(cuMemHostAlloc)(&kept, MIB, 0));
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    CHECK(DRIVER(cuMemHostAlloc)(&gone, 2 * MIB, 0));
    CHECK(DRIVER(cuMemHostRegister)(mine, 4 * MIB, 0));
    CHECK(DRIVER(cuCtxDestroy)(own));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
    printf("freed behind its context: %d\n", DRIVER(cuMemFreeHost)(gone));
    free(mine);
}

/* ---- graphs ---- */

static CUgraphExec make_graph(size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
                                         .bytesize = bytes};
    CUgraph graph;
    CUgraphNode made, freed;
    CUgraphExec exec;
    CHECK(DRIVER(cuGraphCreate)(&graph, 0));
    CHECK(DRIVER(cuGraphAddMemAllocNode)(&made, graph, NULL, 0, &params));
    CHECK(DRIVER(cuGraphAddMemFreeNode)(&freed, graph, &made, 1, params.dptr));
    CHECK(DRIVER(cuGraphInstantiate)(&exec, graph, 0));
    return exec;
}

static void use_graph_memory(void)
{
    const CUgraphExec exec = make_graph(32 * MIB);
    const size_t before = free_mebibytes();
    CHECK(DRIVER(cuGraphLaunch)(exec, 0));
    CHECK(DRIVER(cuCtxSynchronize)());
    printf("launched: %zu MiB less free\n", before - free_mebibytes());
    CHECK(DRIVER(cuGraphExecDestroy)(exec));
    CHECK(DRIVER(cuDeviceGraphMemTrim)(0));
    printf("trimmed: %zu MiB less free\n", before - free_mebibytes());
}

/* What the driver keeps for graphs, and what the report says of it. */
static void reset_behind_a_graph(void)
{
    cuuint64_t reserved = 0;
    const CUgraphExec exec = make_graph(32 * MIB);
    CHECK(DRIVER(cuGraphLaunch)(exec, 0));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuDeviceGetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    printf("%llu MiB of the graph's\n", (unsigned long long)(reserved / MIB));
}

static void capture_an_allocation(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr block;
    cuuint64_t reserved = 0;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuMemAllocAsync)(&block, 16 * MIB, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuStreamEndCapture)(stream, &graph));
    CHECK(DRIVER(cuGraphInstantiate)(&exec, graph, 0));
    CHECK(DRIVER(cuGraphLaunch)(exec, stream));
    CHECK(DRIVER(cuStreamSynchronize)(stream));
    CHECK(DRIVER(cuDeviceGetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    printf("%llu MiB of the graph's\n", (unsigned long long)(reserved / MIB));
}

/* ---- pools ---- */

static cuuint64_t pool_says(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    CHECK(DRIVER(cuMemPoolGetAttribute)(pool, attribute, &value));
    return value / MIB;
}

static void ask_the_default_pool(void)
{
    CUmemoryPool pool;
    CUdeviceptr block;
    CHECK(DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
    CHECK(DRIVER(cuMemAllocAsync)(&block, 64 * MIB, 0));
    printf("used: %llu, at most %llu\n", (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
           (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    printf("reserved: %s\n", pool_says(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 64 ? "as much" : "less");
    CHECK(DRIVER(cuMemFreeAsync)(block, 0));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuMemPoolTrimTo)(pool, 0));
    printf("after the trim: used %llu, reserved %llu\n",
           (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
           (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

static void set_to_zero(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t zero = 0;
    CHECK(DRIVER(cuMemPoolSetAttribute)(pool, attribute, &zero));
}

/* As allocators do for their statistics. */
static void ask_for_peaks(void)
{
    CUmemoryPool pool;
    CUdeviceptr first, second;
    CHECK(DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
    CHECK(DRIVER(cuMemAllocAsync)(&first, 64 * MIB, 0));
    CHECK(DRIVER(cuMemAllocAsync)(&second, 32 * MIB, 0));
    CHECK(DRIVER(cuMemFreeAsync)(first, 0));
    CHECK(DRIVER(cuCtxSynchronize)());
    printf("used at most: %llu\n", (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    CHECK(DRIVER(cuMemPoolTrimTo)(pool, 0));
    set_to_zero(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    set_to_zero(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    printf("since then: %llu, reserved %llu\n", (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH),
           (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
    CHECK(DRIVER(cuMemAllocAsync)(&first, 128 * MIB, 0));
    CHECK(DRIVER(cuMemFreeAsync)(first, 0));
    CHECK(DRIVER(cuMemFreeAsync)(second, 0));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuMemPoolTrimTo)(pool, 0));
    printf("and behind more: %llu, reserved %llu\n", (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH),
           (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
}

/* As cuda.core and CCCL do. */
static void use_the_default_pool_by_name(void)
{
    CUmemoryPool pool;
    CUdeviceptr block, none;
    CUstream stream;
    unsigned char byte = 0;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
    CHECK(DRIVER(cuMemAllocFromPoolAsync)(&block, 64 * MIB, pool, stream));
    CHECK(DRIVER(cuMemsetD8Async)(block, 7, 64 * MIB, stream));
    CHECK(DRIVER(cuMemcpyDtoHAsync)(&byte, block + 64 * MIB - 1, 1, stream));
    CHECK(DRIVER(cuStreamSynchronize)(stream));
    printf("used: %llu, last byte %d\n", (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), byte);
    printf("too much: %d\n", DRIVER(cuMemAllocFromPoolAsync)(&none, (size_t)1 << 40, pool, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuStreamSynchronize)(stream));
    printf("used: %llu\n", (unsigned long long)pool_says(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
}

/* ---- physical memory ---- */

static CUmemGenericAllocationHandle create(size_t bytes, int device, CUmemAllocationHandleType type)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = type,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle handle = 0;
    CHECK(DRIVER(cuMemCreate)(&handle, bytes, &properties, 0));
    return handle;
}

static void import_its_own(void)
{
    const CUmemGenericAllocationHandle made = create(8 * MIB, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle imported;
    CUdeviceptr range;
    int file;
    CHECK(DRIVER(cuMemExportToShareableHandle)(&file, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(DRIVER(cuMemImportFromShareableHandle)(&imported, (void *)(uintptr_t)file,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(file);
    CHECK(DRIVER(cuMemAddressReserve)(&range, 8 * MIB, 0, 0, 0));
    CHECK(DRIVER(cuMemMap)(range, 8 * MIB, 0, imported, 0));
    CHECK(DRIVER(cuMemRelease)(imported));
    CHECK(DRIVER(cuMemUnmap)(range, 8 * MIB));
    CHECK(DRIVER(cuMemRelease)(made));
    printf("imported\n");
}

/* A mapping that could not be taken back is there as before: its memory is freed with it. */
static void unmap_in_two_tries(void)
{
    CUdeviceptr range;
    const CUmemGenericAllocationHandle made = create(8 * MIB, 0, CU_MEM_HANDLE_TYPE_NONE);
    CHECK(DRIVER(cuMemAddressReserve)(&range, 8 * MIB, 0, 0, 0));
    CHECK(DRIVER(cuMemMap)(range, 8 * MIB, 0, made, 0));
    CHECK(DRIVER(cuMemRelease)(made));
    const size_t before = free_mebibytes();
    printf("a part: %d", DRIVER(cuMemUnmap)(range, 2 * MIB));
    printf(", %zu MiB more free", free_mebibytes() - before);
    CHECK(DRIVER(cuMemUnmap)(range, 8 * MIB));
    printf(", and then %zu\n", free_mebibytes() - before);
}

/* ---- whose memory it is ---- */

/* Physical memory of the other device, while this one's context is current. */
static void make_memory_elsewhere(void)
{
    CUcontext other;
    const size_t here = free_mebibytes();
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&other, 1));
    const CUmemGenericAllocationHandle handle = create(32 * MIB, 1, CU_MEM_HANDLE_TYPE_NONE);
    printf("here: %zu MiB less free\n", here - free_mebibytes());
    CHECK(DRIVER(cuCtxSetCurrent)(other));
    const size_t there = free_mebibytes();
    CHECK(DRIVER(cuMemRelease)(handle));
    printf("there: %zu MiB less free\n", free_mebibytes() - there);
}

static void *call_as_thread(void *data)
{
    CUdeviceptr block = 0;
    size_t bytes = 0;
    const CUdeviceptr given = *(const CUdeviceptr *)data;
    const CUresult made = DRIVER(cuMemAlloc)(&block, MIB);
    const CUmemGenericAllocationHandle handle = create(32 * MIB, 0, CU_MEM_HANDLE_TYPE_NONE);
    printf("without a context: made %d", made);
    CHECK(DRIVER(cuMemRelease)(handle));
    printf(", range %d", DRIVER(cuMemGetAddressRange)(NULL, &bytes, given));
    printf(" of %zu bytes\n", bytes);
    return NULL;
}

static void call_from_a_thread(void)
{
    CUdeviceptr block;
    pthread_t thread;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(pthread_create(&thread, NULL, call_as_thread, &block));
    CHECK(pthread_join(thread, NULL));
    CHECK(DRIVER(cuMemFree)(block));
}

/* ---- frees and failures ---- */

static void free_by_another_family(void)
{
    CUdeviceptr linear, ordered;
    CHECK(DRIVER(cuMemAlloc)(&linear, MIB));
    CHECK(DRIVER(cuMemAllocAsync)(&ordered, MIB, 0));
    printf("cuMemFree of stream-ordered memory: %d\n", DRIVER(cuMemFree)(ordered));
    printf("cuMemFreeAsync of memory of cuMemAlloc: %d\n", DRIVER(cuMemFreeAsync)(linear, 0));
    printf("inside and foreign: %d %d\n", DRIVER(cuMemFreeAsync)(linear + 256, 0), DRIVER(cuMemFreeAsync)(0x1000, 0));
}

/* More than the device, or its budget, has. */
static void fail_and_look_at_the_results(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUdeviceptr block = 0x1234;
    CUmemGenericAllocationHandle handle = 0x5678;
    const size_t much = (size_t)1 << 40;
    size_t pitch = 99;
    printf("%d", DRIVER(cuMemAlloc)(&block, much));
    printf(" %d", DRIVER(cuMemAllocAsync)(&block, much, 0));
    printf(" %d", DRIVER(cuMemAllocPitch)(&block, &pitch, much, 4, 4));
    printf(" %d", DRIVER(cuMemCreate)(&handle, much, &properties, 0));
    printf(": %llx %zu %llx\n", (unsigned long long)block, pitch, (unsigned long long)handle);
}

static const named_way behaviours[] = {
    {"host-context", end_a_context_with_host_memory},
    {"host", use_host_memory},
    {"graph", use_graph_memory},
    {"graph-reset", reset_behind_a_graph},
    {"captured", capture_an_allocation},
    {"pool", ask_the_default_pool},
    {"peaks", ask_for_peaks},
    {"pool-by-name", use_the_default_pool_by_name},
    {"imported", import_its_own},
    {"two-tries", unmap_in_two_tries},
    {"elsewhere", make_memory_elsewhere},
    {"thread", call_from_a_thread},
    {"families", free_by_another_family},
    {"failure", fail_and_look_at_the_results},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(behaviours, sizeof behaviours / sizeof behaviours[0], count, arguments);
}
