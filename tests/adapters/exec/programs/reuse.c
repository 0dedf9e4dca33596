/* A block that is freed while a stream reads it, and whatever can come between that and its next use on another stream.
 *
 *   reuse free             other frees and allocations, so that the block is not the first to be given out again
 *   reuse free-async       the same with cuMemFreeAsync
 *   reuse capture          the free comes while the reading stream is captured
 *   reuse capture-destroy  the reading stream is destroyed while it is captured
 *
 * Exit status: 0 right, 1 wrong bytes, 2 a call failed. */
#include "driver_calls.h"

#include <stdbool.h>
#include <time.h>

enum { BYTES = 32 << 20, OTHER = 4096 }; /* more than frees that wait may hold back */

static CUstream reader, writer;
static unsigned char *seen;

static void CUDA_CB pause_long(void *data)
{
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

static void fill_and_read_late(CUdeviceptr block)
{
    CHECK(DRIVER(cuMemsetD8Async)(block, 1, BYTES, reader));
    CHECK(DRIVER(cuLaunchHostFunc)(reader, pause_long, NULL));
    CHECK(DRIVER(cuMemcpyDtoHAsync)(seen, block, BYTES, reader));
}

static CUdeviceptr free_beside_others(bool async)
{
    CUdeviceptr block, other;
    CHECK(async ? DRIVER(cuMemAllocAsync)(&block, BYTES, reader) : DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemAlloc)(&other, OTHER));
    CHECK(DRIVER(cuCtxSynchronize)());
    fill_and_read_late(block);
    CHECK(async ? DRIVER(cuMemFreeAsync)(block, reader) : DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemFree)(other));
    CHECK(DRIVER(cuMemAlloc)(&other, OTHER));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    return block;
}

static CUdeviceptr free_in_a_capture(bool destroy)
{
    CUdeviceptr block;
    CUgraph graph;
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    fill_and_read_late(block);
    CHECK(DRIVER(cuStreamBeginCapture)(reader, CU_STREAM_CAPTURE_MODE_RELAXED));
    if (destroy)
        CHECK(DRIVER(cuStreamDestroy)(reader));
    CHECK(DRIVER(cuMemFree)(block));
    if (!destroy)
        CHECK(DRIVER(cuStreamEndCapture)(reader, &graph));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    return block;
}

static CUdeviceptr give_out_again(const char *way)
{
    if (strncmp(way, "capture", 7) == 0)
        return free_in_a_capture(strcmp(way, "capture-destroy") == 0);
    return free_beside_others(strcmp(way, "free-async") == 0);
}

int main(int count, char **arguments)
{
    size_t wrong = 0;
    begin();
    CHECK(DRIVER(cuStreamCreateWithPriority)(&reader, CU_STREAM_NON_BLOCKING, 0));
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAllocHost)((void **)&seen, BYTES));
    const CUdeviceptr block = give_out_again(count > 1 ? arguments[1] : "free");
    CHECK(DRIVER(cuMemsetD8Async)(block, 2, BYTES, writer));
    CHECK(DRIVER(cuCtxSynchronize)());
    for (size_t i = 0; i < BYTES; i++)
        wrong += seen[i] != 1;
    printf("%zu wrong\n", wrong);
    return wrong ? 1 : 0;
}
