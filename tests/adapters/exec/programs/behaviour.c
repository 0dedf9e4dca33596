/* Single behaviours, by name: `behaviour NAME`. What each prints is the same with and without Strata. */
#include "driver_calls.h"
#include "ways.h"

#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* ---- captures ---- */

static void allocate_in_a_capture(void)
{
    CUstream stream;
    CUdeviceptr block = 0, before;
    CUgraph graph = NULL;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&before, MIB));
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        CHECK(DRIVER(cuStreamBeginCapture)(stream, (CUstreamCaptureMode)mode));
        const CUresult allocated = DRIVER(cuMemAlloc)(&block, MIB);
        printf("mode %d: cuMemAlloc gave %d", mode, allocated);
        printf(", the capture's end %d\n", DRIVER(cuStreamEndCapture)(stream, &graph));
        if (allocated == CUDA_SUCCESS)
            CHECK(DRIVER(cuMemFree)(block));
    }
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    printf("cuMemAllocAsync in it gave %d\n", DRIVER(cuMemAllocAsync)(&block, MIB, stream));
    CHECK(DRIVER(cuMemsetD8Async)(block, 1, MIB, stream));
    printf("cuMemFreeAsync gave %d\n", DRIVER(cuMemFreeAsync)(block, stream));
    printf("the capture's end %d\n", DRIVER(cuStreamEndCapture)(stream, &graph));
    CHECK(DRIVER(cuMemFree)(before));
    CHECK(DRIVER(cuStreamDestroy)(stream));
}

/* Memory of before a capture is none of its nodes, and stays; also where the capture is lost. */
static void free_on_a_captured_stream(void)
{
    CUstream stream;
    CUdeviceptr plain, ordered;
    CUgraph graph;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&plain, MIB));
    CHECK(DRIVER(cuMemAllocAsync)(&ordered, MIB, stream));
    for (int lost = 0; lost < 2; lost++) {
        CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        if (lost)
            printf("a wait on the host gave %d\n", DRIVER(cuStreamSynchronize)(stream));
        printf("frees in it gave %d", DRIVER(cuMemFreeAsync)(plain, stream));
        printf(" and %d\n", DRIVER(cuMemFreeAsync)(ordered, stream));
        printf("the capture's end %d\n", DRIVER(cuStreamEndCapture)(stream, &graph));
    }
    printf("frees behind it gave %d", DRIVER(cuMemFree)(plain));
    printf(" and %d\n", DRIVER(cuMemFreeAsync)(ordered, stream));
    CHECK(DRIVER(cuStreamDestroy)(stream));
}

/* ---- contexts ---- */

static void reset_the_device(void)
{
    CUdeviceptr block;
    CUcontext context;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 3, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    printf("memory after the reset\n");
}

static void use_a_context_of_its_own(void)
{
    CUdeviceptr block;
    CUcontext context;
    size_t before, with, total;
    unsigned char byte = 0;
    CHECK(DRIVER(cuCtxCreate)(&context, 0, 0));
    CHECK(DRIVER(cuMemGetInfo)(&before, &total));
    CHECK(DRIVER(cuMemAlloc)(&block, 32 * MIB));
    CHECK(DRIVER(cuMemGetInfo)(&with, &total));
    CHECK(DRIVER(cuMemsetD8)(block, 9, 32 * MIB));
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block, 1));
    printf("%zu MiB less free, byte %d\n", (before - with) / MIB, byte);
    printf("too much gave %d\n", DRIVER(cuMemAlloc)(&block, total + 32 * MIB));
    CHECK(DRIVER(cuCtxDestroy)(context));
}

/* More than any device has, and than can be counted. */
static void ask_for_huge_memory(void)
{
    static const size_t sizes[] = {(size_t)1 << 47, SIZE_MAX / 2, (size_t)1 << 63, SIZE_MAX - 511, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CUdeviceptr block;
        size_t pitch;
        printf("%d %d %d %d %d\n", DRIVER(cuMemAlloc)(&block, sizes[i]),
               DRIVER(cuMemAllocAsync)(&block, sizes[i], NULL),
               DRIVER(cuMemAllocManaged)(&block, sizes[i], CU_MEM_ATTACH_GLOBAL),
               DRIVER(cuMemAllocPitch)(&block, &pitch, sizes[i], 16, 4),
               DRIVER(cuMemAllocPitch)(&block, &pitch, 16, sizes[i], 4));
    }
}

static void call_without_a_context(void)
{
    CUdeviceptr block;
    size_t free_bytes, total;
    CHECK(DRIVER(cuCtxSetCurrent)(NULL));
    printf("cuMemAlloc gave %d, cuMemGetInfo %d\n", DRIVER(cuMemAlloc)(&block, MIB),
           DRIVER(cuMemGetInfo)(&free_bytes, &total));
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr block = 0;
    printf(" %d", DRIVER(cuMemAlloc)(&block, bytes));
    return block;
}

/* What belongs to a context ends with it: also its part of a budget. */
static void end_contexts_with_their_memory(void)
{
    CUcontext context;
    for (int i = 0; i < 4; i++) {
        CHECK(DRIVER(cuCtxCreate)(&context, 0, 0));
        take(60 * MIB);
        CHECK(DRIVER(cuCtxDestroy)(context));
    }
    for (int i = 0; i < 4; i++) {
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(context));
        take(60 * MIB);
        CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
        if (i == 0) /* that of begin(), too */
            CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    }
    printf("\n");
}

/* Physical memory outlives the context, and a capture does not. */
static void reset_with_a_handle_and_a_capture(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUstream stream;
    CUcontext context;
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemCreate)(&handle, 32 * MIB, &properties, 0));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuMemRelease)(handle));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    for (int i = 0; i < 3; i++)
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    printf("memory after the reset\n");
}

static void use_a_pool_of_its_own(void)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool;
    CUdeviceptr block;
    cuuint64_t used = 0;
    CHECK(DRIVER(cuMemPoolCreate)(&pool, &properties));
    CHECK(DRIVER(cuDeviceSetMemPool)(0, pool));
    CHECK(DRIVER(cuMemAllocAsync)(&block, 4 * MIB, 0));
    CHECK(DRIVER(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    printf("%llu bytes of its pool\n", (unsigned long long)used);
    CHECK(DRIVER(cuMemFreeAsync)(block, 0));
}

static void use_memory_of_a_peer(void)
{
    CUcontext first, second;
    CUdeviceptr block;
    unsigned char byte = 0;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&first, 0));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&second, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(second));
    CHECK(DRIVER(cuCtxEnablePeerAccess)(first, 0));
    CHECK(DRIVER(cuMemsetD8)(block, 5, MIB));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block + MIB - 1, 1));
    printf("the other device's bytes: %d\n", byte);
    CHECK(DRIVER(cuMemFree)(block));
}

/* ---- processes ---- */

static int ask_as_child(void)
{
    CUdeviceptr block = 0;
    const CUresult result = DRIVER(cuMemAlloc)(&block, MIB);
    return result == CUDA_SUCCESS ? 0 : 50;
}

static void fork_with_a_driver(void)
{
    CUdeviceptr block;
    int status;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        _exit(ask_as_child());
    waitpid(child, &status, 0);
    printf("the child's memory: %s\n", WIFEXITED(status) && WEXITSTATUS(status) ? "refused" : "given");
    CHECK(DRIVER(cuMemFree)(block));
}

/* What was standard error becomes a file of the program's. */
static void close_standard_error(void)
{
    CUdeviceptr block;
    char path[] = "/tmp/strata-exec-closed-XXXXXX";
    close(STDERR_FILENO);
    const int file = mkstemp(path);
    CHECK(file != STDERR_FILENO);
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    printf("%s\n", path);
}

/* As daemons close what they do not know. */
static void close_other_descriptors(void)
{
    enum { MOST = 1024 };
    CUdeviceptr block;
    for (int file = STDERR_FILENO + 1; file < MOST; file++)
        close(file);
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
}

/* ---- a program that goes on ---- */

/* Says that it has memory, and waits for the end of its input. */
static CUdeviceptr hold(void)
{
    CUdeviceptr block;
    char byte;
    CHECK(DRIVER(cuMemAlloc)(&block, 6 * MIB));
    printf("holds\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return block;
}

static void hold_memory(void)
{
    CHECK(DRIVER(cuMemFree)(hold()));
}

static void hold_and_leave(void)
{
    (void)hold();
}

/* ---- errors of the program ---- */

static void write_past_the_end(void)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, 1000));
    CHECK(DRIVER(cuMemsetD8)(block, 1, 1004));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuCtxSynchronize)());
}

static void keep_memory(void)
{
    CUdeviceptr block;
    for (int i = 0; i < 3; i++)
        CHECK(DRIVER(cuMemAlloc)(&block, 2 * MIB));
}

static void ask_until_refused(void)
{
    CUdeviceptr blocks[64];
    int count = 0;
    CUresult result = CUDA_SUCCESS;
    while (count < 64 && (result = DRIVER(cuMemAlloc)(&blocks[count], 16 * MIB)) == CUDA_SUCCESS)
        count++;
    printf("%d blocks, then %d\n", count, result);
    while (count)
        CHECK(DRIVER(cuMemFree)(blocks[--count]));
    CHECK(DRIVER(cuMemAlloc)(&blocks[0], 32 * MIB));
    printf("and on\n");
}

static size_t free_mebibytes(void)
{
    size_t free_bytes, total;
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    return free_bytes / MIB;
}

/* Blocks that a stream has used, freed and asked about: without that stream, and with it. */
static void ask_about_freed_memory(void)
{
    enum { BLOCKS = 64 };
    CUdeviceptr blocks[BLOCKS];
    CUstream stream = NULL;
    const size_t all = free_mebibytes();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(DRIVER(cuMemAlloc)(&blocks[i], MIB));
            CHECK(DRIVER(cuMemsetD8Async)(blocks[i], 1, MIB, stream));
        }
        printf("live: %s\n", free_mebibytes() == all - BLOCKS ? "less is free" : "other memory is free");
        for (int i = 0; i < BLOCKS; i++)
            CHECK(DRIVER(cuMemFree)(blocks[i]));
        printf("freed: %s\n", free_mebibytes() == all ? "all is free" : "not all is free");
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    }
}

/* A second free, on every family's way, and then the blocks beside it. */
static void free_twice(void)
{
    enum { BLOCKS = 4 };
    CUdeviceptr blocks[BLOCKS];
    unsigned type = 0;
    unsigned char byte = 0;
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(DRIVER(cuMemAlloc)(&blocks[i], MIB));
        CHECK(DRIVER(cuMemsetD8)(blocks[i], (unsigned char)i, MIB));
    }
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(DRIVER(cuMemFree)(blocks[i]));
        printf("type: %d\n", DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[i]));
        printf("free: %d\n", DRIVER(cuMemFree)(blocks[i]));
        printf("stream-ordered free: %d\n", DRIVER(cuMemFreeAsync)(blocks[i], 0));
        for (int other = i + 1; other < BLOCKS; other++) {
            CHECK(DRIVER(cuMemcpyDtoH)(&byte, blocks[other] + MIB - 1, 1));
            printf("block %d: %d\n", other, byte);
        }
    }
    CHECK(DRIVER(cuMemAlloc)(&blocks[0], MIB));
    CHECK(DRIVER(cuMemsetD8)(blocks[0], 9, MIB));
    CHECK(DRIVER(cuMemFree)(blocks[0]));
}

static const named_way behaviours[] = {
    {"capture", allocate_in_a_capture},
    {"capture-free", free_on_a_captured_stream},
    {"huge", ask_for_huge_memory},
    {"reset", reset_the_device},
    {"context", use_a_context_of_its_own},
    {"no-context", call_without_a_context},
    {"fork", fork_with_a_driver},
    {"overrun", write_past_the_end},
    {"hold", hold_memory},
    {"hold-and-leave", hold_and_leave},
    {"contexts", end_contexts_with_their_memory},
    {"reset-handle", reset_with_a_handle_and_a_capture},
    {"own-pool", use_a_pool_of_its_own},
    {"peer", use_memory_of_a_peer},
    {"closed", close_standard_error},
    {"closed-others", close_other_descriptors},
    {"leak", keep_memory},
    {"refused", ask_until_refused},
    {"free-twice", free_twice},
    {"told", ask_about_freed_memory},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(behaviours, sizeof behaviours / sizeof behaviours[0], count, arguments);
}
