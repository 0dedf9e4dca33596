/* Nanoseconds of a cuMemAlloc and its cuMemFree: on an idle device, and with work on the block each time, on the
 * default stream and on a non-blocking one; the same beside 128 non-blocking streams, as PyTorch makes them. Usage:
 * pair [rounds]. */
#include "driver_calls.h"

#include <time.h>

enum { BYTES = 1 << 20, STREAMS = 128 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double measure(int rounds, int works, CUstream stream)
{
    CUdeviceptr block;
    double taken = 0;
    for (int i = 0; i < rounds; i++) {
        double begin = now();
        CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
        taken += now() - begin;
        if (works)
            CHECK(DRIVER(cuMemsetD8Async)(block, 1, BYTES, stream));
        begin = now();
        CHECK(DRIVER(cuMemFree)(block));
        taken += now() - begin;
    }
    CHECK(DRIVER(cuCtxSynchronize)());
    return taken / rounds;
}

int main(int count, char **arguments)
{
    const int rounds = count > 1 ? atoi(arguments[1]) : 2000;
    CUstream streams[STREAMS];
    begin();
    measure(rounds / 10 + 1, 1, 0);
    printf("idle %.0f ns\n", measure(rounds, 0, 0));
    printf("default stream %.0f ns\n", measure(rounds, 1, 0));
    for (int i = 0; i < STREAMS; i++) {
        CHECK(DRIVER(cuStreamCreate)(&streams[i], CU_STREAM_NON_BLOCKING));
        if (i != 0 && i != STREAMS - 1)
            continue;
        const char *beside = i ? "beside 128 streams" : "beside a non-blocking stream";
        printf("%s: idle %.0f ns\n", beside, measure(rounds, 0, 0));
        printf("%s: default stream %.0f ns\n", beside, measure(rounds, 1, 0));
        printf("%s: non-blocking stream %.0f ns\n", beside, measure(rounds, 1, streams[0]));
    }
    for (int i = 0; i < STREAMS; i++)
        CHECK(DRIVER(cuStreamDestroy)(streams[i]));
    return 0;
}
