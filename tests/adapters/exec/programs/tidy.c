/* A program that ends its context before it ends: `tidy FAULT END`. */
#include "driver_calls.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* ---- faults ---- */

static void write_over_the_end(void)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, 1000));
    CHECK(DRIVER(cuMemsetD8)(block, 1, 1008));
    CHECK(DRIVER(cuMemFree)(block));
}

static void write_what_is_freed(void)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, 1000));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemsetD8)(block, 1, 16));
}

/* By work that nothing waits for. */
static void write_what_is_freed_late(void)
{
    CUstream stream;
    CUdeviceptr block;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAllocAsync)(&block, 1000, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuMemsetD8Async)(block, 1, 16, stream));
}

static __attribute__((noinline)) CUdeviceptr take(size_t bytes)
{
    CUdeviceptr block = 0;
    CHECK(DRIVER(cuMemAlloc)(&block, bytes));
    return block;
}

/* 8 MiB are held and 2 more were; a stream without order makes frees wait. More than 64 MiB is refused. */
static void hold(void)
{
    CUstream stream;
    CUdeviceptr refused;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    take(8 * MIB);
    CHECK(DRIVER(cuMemFree)(take(2 * MIB)));
    (void)DRIVER(cuMemAlloc)(&refused, 80 * MIB);
}

static void sleep_on_the_device(void *seconds)
{
    sleep(*(const unsigned *)seconds);
}

/* It writes what is freed, once it ends. */
static void begin_long_work(void)
{
    static unsigned seconds = 4; /* more than the checks wait for */
    CUstream stream;
    CUdeviceptr block;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAllocAsync)(&block, 1000, stream));
    CHECK(DRIVER(cuLaunchHostFunc)(stream, sleep_on_the_device, &seconds));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuMemsetD8Async)(block, 1, 16, stream));
}

/* The free is made once no stream is captured. */
static void free_beside_a_capture(void)
{
    CUstream stream;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr block = take(3 * MIB);
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuMemFree)(block));
}

/* ---- ends ---- */

static void reset(void)
{
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
}

static void begin_anew(void)
{
    CUcontext context;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
}

static bool is(const char *argument, const char *name)
{
    return strcmp(argument, name) == 0;
}

static void commit(const char *fault)
{
    if (is(fault, "over"))
        write_over_the_end();
    else if (is(fault, "freed"))
        write_what_is_freed();
    else if (is(fault, "late"))
        write_what_is_freed_late();
    else if (is(fault, "long"))
        begin_long_work();
    else if (is(fault, "captured"))
        free_beside_a_capture();
    else
        hold();
}

int main(int count, char **arguments)
{
    const char *fault = count > 1 ? arguments[1] : "", *end = count > 2 ? arguments[2] : "";
    begin();
    commit(fault);
    if (is(end, "release")) {
        CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    } else if (is(end, "reset")) {
        reset();
    } else if (is(end, "reset-twice")) {
        reset();
        begin_anew();
        take(4 * MIB);
        reset();
    } else if (is(end, "reset-often")) {
        for (int i = 0; i < 20; i++) {
            reset();
            begin_anew();
            take(i == 0 ? 9 * MIB : MIB);
        }
        reset();
        begin_anew();
        take(2 * MIB);
    }
    return 0;
}
