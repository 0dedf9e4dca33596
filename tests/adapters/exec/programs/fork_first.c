/* Forks before the first call of the driver: both processes use it. `fork_first begun`: behind calls that ask for no
 * memory; the child's are refused, whichever comes first. `fork_first exits`: the child ends as programs do. */
#include "driver_calls.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void ask_until_refused(const char *who)
{
    CUdeviceptr block;
    int count = 0;
    CUresult result = CUDA_SUCCESS;
    begin();
    while (count < 64 && (result = DRIVER(cuMemAlloc)(&block, 16 << 20)) == CUDA_SUCCESS)
        count++;
    printf("%s: %d blocks, then %d\n", who, count, result);
    fflush(stdout);
}

/* Each in a child of its own. */
static void ask(size_t number)
{
    CUdeviceptr block = 0;
    CUcontext context;
    CUstream stream;
    CUmemoryPool pool;
    size_t free_bytes, total;
    void *memory;
    const CUresult results[] = {number == 0   ? DRIVER(cuMemAlloc)(&block, 1 << 20)
                                : number == 1 ? DRIVER(cuMemAllocAsync)(&block, 1 << 20, NULL)
                                : number == 2 ? DRIVER(cuMemGetInfo)(&free_bytes, &total)
                                : number == 3 ? DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING)
                                : number == 4 ? DRIVER(cuCtxCreate)(&context, 0, 0)
                                : number == 5 ? DRIVER(cuMemAllocHost)(&memory, 1 << 20)
                                : number == 6 ? DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0)
                                : number == 7 ? DRIVER(cuDevicePrimaryCtxReset)(0)
                                : number == 8 ? DRIVER(cuMemFree)(1 << 20)
                                              : DRIVER(cuStreamBeginCapture)(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
                                DRIVER(cuMemAlloc)(&block, 1 << 20), DRIVER(cuMemFree)(block),
                                DRIVER(cuMemGetInfo)(&free_bytes, &total)};
    printf("%zu:", number);
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        printf(" %d", results[i]);
    printf("\n");
    fflush(stdout);
}

static int fork_behind_the_start(void)
{
    int failed = 0;
    begin();
    for (size_t i = 0; i < 10; i++) {
        int status;
        const pid_t child = fork();
        if (child == 0) {
            ask(i);
            _exit(0);
        }
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    ask_until_refused("parent");
    return failed ? 1 : 0;
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "begun") == 0)
        return fork_behind_the_start();
    int status;
    const pid_t child = fork();
    if (child == 0) {
        ask_until_refused("child");
        if (count > 1)
            exit(0);
        _exit(0);
    }
    waitpid(child, &status, 0);
    ask_until_refused("parent");
    return status ? 1 : 0;
}
