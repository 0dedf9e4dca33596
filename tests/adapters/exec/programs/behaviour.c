/* Single behaviours, by name: `behaviour NAME`. What each prints is the same with and without Strata. */
#include "driver_calls.h"

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

static void call_without_a_context(void)
{
    CUdeviceptr block;
    size_t free_bytes, total;
    CHECK(DRIVER(cuCtxSetCurrent)(NULL));
    printf("cuMemAlloc gave %d, cuMemGetInfo %d\n", DRIVER(cuMemAlloc)(&block, MIB),
           DRIVER(cuMemGetInfo)(&free_bytes, &total));
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

/* ---- a program that goes on ---- */

/* Says that it has memory, and ends when its input does. */
static void hold_memory(void)
{
    CUdeviceptr block;
    char byte;
    CHECK(DRIVER(cuMemAlloc)(&block, 6 * MIB));
    printf("holds\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    CHECK(DRIVER(cuMemFree)(block));
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

static const struct {
    const char *name;
    void (*run)(void);
} behaviours[] = {
    {"capture", allocate_in_a_capture},
    {"reset", reset_the_device},
    {"context", use_a_context_of_its_own},
    {"no-context", call_without_a_context},
    {"fork", fork_with_a_driver},
    {"overrun", write_past_the_end},
    {"hold", hold_memory},
    {"leak", keep_memory},
    {"refused", ask_until_refused},
};

int main(int count, char **arguments)
{
    begin();
    for (size_t i = 0; count > 1 && i < sizeof behaviours / sizeof behaviours[0]; i++)
        if (strcmp(behaviours[i].name, arguments[1]) == 0) {
            behaviours[i].run();
            return 0;
        }
    printf("unknown behaviour\n");
    return 3;
}
