/* Resets of a device that a hook sees, and what is made beside and behind them, by name: `resets NAME`. */
#include "ends.h"

#include <signal.h>

static void *reset(void *device)
{
    CHECK(DRIVER(cuDevicePrimaryCtxReset)((CUdevice)(uintptr_t)device));
    return NULL;
}

/* ---- beside the call that resets ---- */

/* What asks for a report meanwhile looks at no stream that has ended, also where the context has begun anew. */
static void ask_beside_a_reset(void)
{
    pthread_t thread;
    CUcontext again;
    CUdeviceptr block;
    CUstream stream;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(pthread_create(&thread, NULL, reset, NULL));
    while (is_active(0))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
    raise(SIGUSR1);
    CHECK(pthread_join(thread, NULL));
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* the report is written */
    printf("went on\n");
}

/* The reset's call goes on behind the end of the context, which begins anew. */
static pthread_t begin_anew_beside(CUdevice device)
{
    pthread_t thread;
    CUcontext context;
    CHECK(pthread_create(&thread, NULL, reset, (void *)(uintptr_t)device));
    while (is_active(device))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    return thread;
}

/* Memory of the context that has begun anew stays, once the reset's call returns, too. */
static void keep_memory_beside_a_reset(void)
{
    CUdeviceptr block;
    unsigned char byte = 0;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const pthread_t thread = begin_anew_beside(0);
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 7, MIB));
    CHECK(pthread_join(thread, NULL));
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block + MIB - 1, 1));
    printf("read %d", byte);
    printf(", free gave %d\n", DRIVER(cuMemFree)(block));
}

/* The first request, which finds the reset; then the reset's call returns. */
static void find_reset(pthread_t thread)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(pthread_join(thread, NULL));
}

static void stream_beside_a_reset(void)
{
    CUdeviceptr block;
    CUstream reader, writer;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const pthread_t thread = begin_anew_beside(0);
    CHECK(DRIVER(cuStreamCreate)(&reader, CU_STREAM_NON_BLOCKING));
    find_reset(thread);
    block = new_block();
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    read_late(block, reader);
    CHECK(DRIVER(cuMemFree)(block));
    write_again(writer, false);
    printf("%zu wrong\n", wrong_bytes());
}

static void green_context_beside_a_reset(void)
{
    CUdeviceptr block;
    free_order order = {0};
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const pthread_t thread = begin_anew_beside(0);
    CHECK(DRIVER(cuCtxGetCurrent)(&order.first));
    const CUgreenCtx green = new_green();
    find_reset(thread);
    CHECK(DRIVER(cuStreamCreate)(&order.writer, CU_STREAM_NON_BLOCKING));
    printf("%zu wrong\n", read_on_green(context_of(green), &order, NULL, 0));
}

/* With a budget that has room for one of them. The first one goes with the context. */
static void charge_beside_a_reset(void)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
    const pthread_t thread = begin_anew_beside(0);
    printf("%d", DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
    find_reset(thread);
    printf(" %d\n", DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
}

/* The context of device 1 begins anew, and reads memory of device 0. */
static void peer_beside_a_reset(void)
{
    CUcontext peer;
    CUdeviceptr block;
    free_order order = {0};
    CHECK(DRIVER(cuCtxGetCurrent)(&order.first));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamCreate)(&order.writer, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&peer, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(peer));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const pthread_t thread = begin_anew_beside(1);
    CHECK(DRIVER(cuCtxEnablePeerAccess)(order.first, 0));
    find_reset(thread);
    CHECK(DRIVER(cuCtxGetCurrent)(&peer));
    CHECK(DRIVER(cuCtxSetCurrent)(order.first));
    printf("%zu wrong\n", read_on_green(peer, &order, NULL, 0));
}

/* ---- behind it ---- */

/* With a budget that has room for one block. */
static void make_and_free(int count)
{
    CUdeviceptr block;
    for (int i = 0; i < count; i++) {
        printf(" %d", DRIVER(cuMemAlloc)(&block, 60 * MIB));
        printf(" %d", DRIVER(cuMemFree)(block));
    }
}

/* Its context had access. */
static void free_behind_a_peers_reset(void)
{
    CUcontext first, peer;
    CUdeviceptr block;
    CUstream stream;
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&peer, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(peer));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuCtxEnablePeerAccess)(first, 0));
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(1));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    make_and_free(3);
    printf("\n");
}

/* Each is free behind a barrier of the context that has begun anew. */
static void free_behind_a_reset(void)
{
    CUcontext again;
    CUstream stream;
    for (int round = 0; round < 2; round++) {
        for (int i = round; i < 3; i++) /* the last one's handle is none behind the reset */
            CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        make_and_free(3);
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(again));
    }
    printf("\n");
}

CUresult CUDAAPI cuNewEvents(int *count);

static int events_so_far(void)
{
    WIDER(cuNewEvents, "cuNewEvents", 13000);
    int count;
    CHECK(cuNewEvents_found(&count));
    return count;
}

/* By one event for all: how many are made for four barriers behind a reset. */
static void order_behind_a_reset(void)
{
    CUcontext again;
    CUdeviceptr block;
    CUstream stream;
    int before = 0;
    size_t free_bytes, total;
    for (int i = 0; i < 2; i++) {
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        before = events_so_far();
        for (int barriers = 0; barriers < 4; barriers++) {
            CHECK(DRIVER(cuMemAlloc)(&block, MIB));
            CHECK(DRIVER(cuLaunchHostFunc)(stream, pause_long, NULL));
            CHECK(DRIVER(cuMemFree)(block));
            CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
        }
        if (i)
            break;
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(again));
    }
    printf("%d made\n", events_so_far() - before);
}

CUresult CUDAAPI cuNewQueries(int *count);

/* A barrier asks each stream. */
static int queries_so_far(void)
{
    WIDER(cuNewQueries, "cuNewQueries", 13000);
    int count;
    CHECK(cuNewQueries_found(&count));
    return count;
}

/* What was live, the most that was, and the frees that no barrier had followed yet are those of the context that has
 * begun anew: no request needs a barrier, frees share one, and what waits is held to what has been live since. */
static void count_behind_a_reset(void)
{
    CUcontext again;
    CUdeviceptr block;
    CUstream stream;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&block, 2048 * MIB)); /* a part of which is more than the blocks below */
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(again));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    const int before = queries_so_far();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    printf("%d for a request", queries_so_far() - before);
    for (int i = 0; i < 8; i++) {
        CHECK(DRIVER(cuMemFree)(block));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    }
    printf(", %d for frees\n", queries_so_far() - before);
    CHECK(DRIVER(cuMemAlloc)(&block, 32 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemAlloc)(&block, 32 * MIB));
}

/* ---- of another device ---- */

CUresult CUDAAPI cuNewDelay(unsigned milliseconds);

/* A stream of device 1 reads memory of device 0, which is freed while device 1 is about to be reset. */
static void free_before_a_peers_reset(void)
{
    WIDER(cuNewDelay, "cuNewDelay", 13000);
    CUcontext first, peer;
    CUstream reader, writer;
    pthread_t thread;
    CUdeviceptr other;
    const CUdeviceptr block = new_block();
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&peer, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(peer));
    CHECK(DRIVER(cuMemAlloc)(&other, MIB));
    CHECK(DRIVER(cuCtxEnablePeerAccess)(first, 0));
    CHECK(DRIVER(cuStreamCreate)(&reader, CU_STREAM_NON_BLOCKING));
    read_late(block, reader);
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(cuNewDelay_found(300));
    CHECK(pthread_create(&thread, NULL, reset, (void *)(uintptr_t)1));
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    CHECK(DRIVER(cuMemFree)(block));
    write_again(writer, false);
    CHECK(pthread_join(thread, NULL));
    printf("%zu wrong\n", wrong_bytes());
}

static const named_way ways[] = {
    {"beside", ask_beside_a_reset},
    {"kept", keep_memory_beside_a_reset},
    {"stream", stream_beside_a_reset},
    {"green", green_context_beside_a_reset},
    {"charge", charge_beside_a_reset},
    {"peer", peer_beside_a_reset},
    {"peer-frees", free_behind_a_peers_reset},
    {"frees", free_behind_a_reset},
    {"events", order_behind_a_reset},
    {"counts", count_behind_a_reset},
    {"of-peer", free_before_a_peers_reset},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
