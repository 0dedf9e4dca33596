/* A thread waits for memory of a budget, another one resets the device, and a third frees what the first waits for:
 * `waits linear` or `waits managed`, by what the first asks for. A deadlock ends by a signal. */
#include "driver_calls.h"
#include "ways.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static CUcontext context;

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

static void *ask(void *managed)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    const CUresult result = managed ? DRIVER(cuMemAllocManaged)(&block, 3 * MIB, CU_MEM_ATTACH_GLOBAL)
                                    : DRIVER(cuMemAlloc)(&block, 3 * MIB);
    if (result == CUDA_SUCCESS) /* the context has begun anew */
        CHECK(DRIVER(cuMemFree)(block));
    return NULL;
}

static void *reset(void *data)
{
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    return data;
}

static void reset_beside(void *managed)
{
    CUdeviceptr block;
    pthread_t asking, resetting;
    alarm(30);
    CHECK(DRIVER(cuCtxGetCurrent)(&context));
    CHECK(DRIVER(cuMemAlloc)(&block, 3 * MIB));
    CHECK(pthread_create(&asking, NULL, ask, managed));
    pause_briefly();
    CHECK(pthread_create(&resetting, NULL, reset, NULL));
    pause_briefly();
    (void)DRIVER(cuMemFree)(block);
    CHECK(pthread_join(asking, NULL));
    CHECK(pthread_join(resetting, NULL));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuMemAlloc)(&block, 3 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    printf("went on\n");
}

static void ask_for_linear(void)
{
    reset_beside(NULL);
}

static void ask_for_managed(void)
{
    reset_beside(&context);
}

static const named_way ways[] = {
    {"linear", ask_for_linear},
    {"managed", ask_for_managed},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
