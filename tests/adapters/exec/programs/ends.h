/* What programs share that end contexts, on a driver with more of them (wider_driver.c): green contexts, barriers, and
 * memory that is given out again while a stream may read it still. */
#ifndef STRATA_TEST_EXEC_ENDS_H
#define STRATA_TEST_EXEC_ENDS_H

#include "ways.h"
#include "wider_calls.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* ---- contexts ---- */

static inline CUgreenCtx new_green(void)
{
    WIDER(cuGreenCtxCreate, "cuGreenCtxCreate", 12040);
    WIDER(cuDeviceGetDevResource, "cuDeviceGetDevResource", 12040);
    WIDER(cuDevResourceGenerateDesc, "cuDevResourceGenerateDesc", 12040);
    CUdevResource resource;
    CUdevResourceDesc all;
    CUgreenCtx green;
    CHECK(cuDeviceGetDevResource_found(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevResourceGenerateDesc_found(&all, &resource, 1));
    CHECK(cuGreenCtxCreate_found(&green, all, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static inline int is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    CHECK(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active));
    return active;
}

static inline CUcontext context_of(CUgreenCtx green)
{
    WIDER(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040);
    CUcontext context;
    CHECK(cuCtxFromGreenCtx_found(&context, green));
    return context;
}

/* ---- memory ---- */

/* Frees and asks: what waits is freed behind a barrier of all streams. */
static inline void make_barrier(void)
{
    CUdeviceptr block;
    size_t free_bytes, total;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
}

static inline void CUDA_CB pause_long(void *data)
{
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

enum { BYTES = 32 << 20 }; /* more than frees that wait may hold back */

static unsigned char *seen; /* of BYTES */

static inline CUdeviceptr new_block(void)
{
    CUdeviceptr block;
    if (!seen)
        CHECK(DRIVER(cuMemAllocHost)((void **)&seen, BYTES));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
    CHECK(DRIVER(cuCtxSynchronize)());
    return block;
}

static inline void read_late(CUdeviceptr block, CUstream reader)
{
    CHECK(DRIVER(cuLaunchHostFunc)(reader, pause_long, NULL));
    CHECK(DRIVER(cuMemcpyDtoHAsync)(seen, block, BYTES, reader));
}

/* The memory is given out again, and written on a stream that waits for nothing. */
static inline CUdeviceptr write_again(CUstream writer, bool async)
{
    CUdeviceptr block;
    CHECK(async ? DRIVER(cuMemAllocAsync)(&block, BYTES, writer) : DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8Async)(block, 2, BYTES, writer));
    CHECK(DRIVER(cuStreamSynchronize)(writer));
    return block;
}

static inline size_t wrong_bytes(void)
{
    size_t wrong = 0;
    CHECK(DRIVER(cuCtxSynchronize)());
    for (size_t i = 0; i < BYTES; i++)
        wrong += seen[i] != 1;
    return wrong;
}

typedef struct free_order {
    CUcontext first;
    CUstream writer;
    CUdeviceptr block;
} free_order;

static inline void *free_and_write(void *data)
{
    free_order *order = data;
    CHECK(DRIVER(cuCtxSetCurrent)(order->first));
    CHECK(DRIVER(cuMemFree)(order->block));
    order->block = write_again(order->writer, false);
    return NULL;
}

/* Wrong bytes: freed in the green context, in either way, and on another thread while that is current here. */
static inline size_t read_on_green(CUcontext own, const free_order *with, CUstream stream, unsigned way)
{
    free_order order = *with;
    pthread_t thread;
    order.block = new_block();
    CHECK(DRIVER(cuCtxSetCurrent)(own));
    read_late(order.block, stream);
    if (way == 2) {
        CHECK(pthread_create(&thread, NULL, free_and_write, &order));
        CHECK(pthread_join(thread, NULL));
    } else {
        CHECK(way ? DRIVER(cuMemFreeAsync)(order.block, stream) : DRIVER(cuMemFree)(order.block));
        CHECK(DRIVER(cuCtxSetCurrent)(order.first));
        order.block = write_again(order.writer, way == 1);
        CHECK(DRIVER(cuCtxSetCurrent)(own));
    }
    const size_t wrong = wrong_bytes();
    CHECK(DRIVER(cuCtxSetCurrent)(order.first));
    CHECK(DRIVER(cuMemFree)(order.block));
    return wrong;
}

#endif
