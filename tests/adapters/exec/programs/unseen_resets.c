/* Resets of a device that no hook sees, found by what is asked next, by name: `unseen_resets NAME`. */
#include "ends.h"

CUresult CUDAAPI cuNewReset(CUdevice device);

static void reset_unseen(void)
{
    WIDER(cuNewReset, "cuNewReset", 13000);
    CUcontext context;
    CUdeviceptr block;
    CHECK(cuNewReset_found(0));
    printf("without a context: %s\n", DRIVER(cuMemAllocAsync)(&block, 64 * MIB, NULL) ? "refused" : "given");
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
}

static void ask_behind_a_reset(void)
{
    CUdeviceptr block;
    unsigned char byte = 0;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, NULL));
    reset_unseen();
    CHECK(DRIVER(cuMemAllocAsync)(&block, 8 * MIB, NULL));
    CHECK(DRIVER(cuMemsetD8)(block, 3, 8 * MIB));
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block + MIB, 1));
    reset_unseen();
    CHECK(DRIVER(cuMemAlloc)(&block, 8 * MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 3, 8 * MIB));
    printf("went on, read %d\n", byte);
}

/* ---- begun anew at once ---- */

/* The context begins anew at once, so that no call fails for the reset. */
static void reset_unseen_at_once(void)
{
    WIDER(cuNewReset, "cuNewReset", 13000);
    CUcontext context;
    CHECK(cuNewReset_found(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
}

/* A block of the size that was freed last. */
static void hit_behind_a_reset(void)
{
    CUdeviceptr block, kept;
    CUstream stream;
    for (int i = 0; i < 2; i++) {
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(DRIVER(cuMemAlloc)(&kept, MIB));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, stream));
        make_barrier();
        CHECK(DRIVER(cuMemFree)(kept));
        CHECK(DRIVER(cuMemFreeAsync)(block, stream));
        reset_unseen_at_once();
        CHECK(i ? DRIVER(cuMemAlloc)(&block, MIB) : DRIVER(cuMemAllocAsync)(&block, MIB, NULL));
        CHECK(DRIVER(cuMemsetD8)(block, 3, MIB));
        CHECK(DRIVER(cuMemFree)(block));
    }
    printf("went on\n");
}

/* Frees of blocks of before, a capture, and a question, each as the first call: none asks a stream of before. */
static void free_behind_an_unseen_reset(void)
{
    enum { BLOCKS = 1100 }; /* more than frees that wait for one barrier */
    static CUdeviceptr blocks[BLOCKS];
    CUstream stream;
    for (int i = 0; i < BLOCKS; i++)
        CHECK(DRIVER(cuMemAlloc)(&blocks[i], 512));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    reset_unseen_at_once();
    for (int i = 0; i < BLOCKS; i++)
        (void)DRIVER(cuMemFree)(blocks[i]);
    printf("went on\n");
}

static void capture_behind_an_unseen_reset(void)
{
    CUdeviceptr block;
    CUstream stream;
    CUgraph graph;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    for (int i = 0; i < 2; i++) /* one handle is another stream's behind the reset */
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    reset_unseen_at_once();
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, CU_STREAM_PER_THREAD)); /* that is not captured */
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8Async)(block, 1, MIB, stream));
    CHECK(DRIVER(cuStreamEndCapture)(stream, &graph));
    CHECK(DRIVER(cuMemFree)(block));
    make_barrier();
    printf("went on\n");
}

static void ask_for_memory_behind_an_unseen_reset(void)
{
    CUdeviceptr block;
    CUstream stream;
    size_t free_bytes, total;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemAlloc)(&block, 59 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    reset_unseen_at_once();
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    printf("%zu of %zu MiB free,", free_bytes / MIB, total / MIB);
    CHECK(DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
    reset_unseen_at_once();
    CHECK(DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
    printf(" %d", DRIVER(cuMemAlloc)(&block, 60 * MIB));
    printf(" %d\n", DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
}

/* What was ordered before is gone with the context. */
static void make_behind_an_unseen_reset(void)
{
    CUstream stream;
    CUcontext own, first;
    for (int i = 0; i < 2; i++) {
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        make_barrier();
        reset_unseen();
        if (i)
            CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(DRIVER(cuCtxGetCurrent)(&first));
        CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(first));
        make_barrier();
    }
    printf("went on\n");
}

/* The first request behind a reset that was not seen waits for what a stream of before has freed, and is served. */
static void keep_what_a_finding_request_gave(void)
{
    WIDER(cuNewReset, "cuNewReset", 13000);
    CUcontext again;
    CUdeviceptr block, other;
    CUstream stream;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamCreate)(&stream, 0));
    CHECK(DRIVER(cuMemAllocAsync)(&block, BYTES, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(cuNewReset_found(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(again));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemAlloc)(&other, BYTES));
    CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
    printf("free gave %d\n", DRIVER(cuMemFree)(block));
}

/* ---- by another thread, and of another device ---- */

/* Its first call is one that keeps nothing of the context; the memory is kept when the reset is found. */
static void *ask_in_a_new_thread(void *context)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
                                         .bytesize = MIB};
    CUdeviceptr block;
    CUgraph graph;
    CUgraphNode node;
    size_t free_bytes, total;
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuGraphCreate)(&graph, 0));
    CHECK(DRIVER(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    CHECK(DRIVER(cuMemsetD8)(block, 3, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    return NULL;
}

static void ask_by_another_thread(void)
{
    CUdeviceptr block;
    CUcontext context;
    pthread_t thread;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    reset_unseen_at_once();
    CHECK(DRIVER(cuCtxGetCurrent)(&context));
    CHECK(pthread_create(&thread, NULL, ask_in_a_new_thread, context));
    CHECK(pthread_join(thread, NULL));
    printf("went on\n");
}

/* Of 100 MiB 60 went with the other device's context. */
static void ask_of_another_device(void)
{
    WIDER(cuNewReset, "cuNewReset", 13000);
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;
    CUcontext first, second;
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&second, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(second));
    CHECK(DRIVER(cuMemAlloc)(&block, 60 * MIB));
    CHECK(cuNewReset_found(1));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&second, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    for (int i = 0; i < 3; i++) /* the thread knows where it is */
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    printf("60 MiB there: %d\n", DRIVER(cuMemCreate)(&handle, 60 * MIB, &properties, 0));
}

/* ---- in the middle of requests ---- */

CUresult CUDAAPI cuNewResetsInside(int count);

/* The context ends in the middle of a request, and again while it is made once more. */
static void reset_inside_requests(void)
{
    WIDER(cuNewResetsInside, "cuNewResetsInside", 13000);
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(cuNewResetsInside_found(4));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 1, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(cuNewResetsInside_found(4));
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, NULL));
    CHECK(DRIVER(cuMemsetD8)(block, 1, MIB));
    CHECK(DRIVER(cuMemFreeAsync)(block, NULL));
    CHECK(cuNewResetsInside_found(100));
    printf("went on, and gave up with %d\n", DRIVER(cuMemAlloc)(&block, MIB));
}

CUresult CUDAAPI cuNewResetsBesidePools(int count);

/* While a stack is built, more often than a request is made again. */
static void reset_inside_a_build(void)
{
    WIDER(cuNewResetsBesidePools, "cuNewResetsBesidePools", 13000);
    CUdeviceptr block;
    CHECK(cuNewResetsBesidePools_found(100));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 1, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    printf("went on\n");
}

static const named_way ways[] = {
    {"asked-twice", ask_behind_a_reset},
    {"hit", hit_behind_a_reset},
    {"freed", free_behind_an_unseen_reset},
    {"captured", capture_behind_an_unseen_reset},
    {"asked", ask_for_memory_behind_an_unseen_reset},
    {"made", make_behind_an_unseen_reset},
    {"finding", keep_what_a_finding_request_gave},
    {"inside", reset_inside_requests},
    {"building", reset_inside_a_build},
    {"thread", ask_by_another_thread},
    {"device", ask_of_another_device},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
