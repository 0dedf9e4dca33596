/* Memory that is freed while work on it is under way, on streams of every kind, and given out again at once: what each
 * stream wrote must be what it reads. The program relies on nothing but cuMemAlloc and cuMemFree.
 *
 * Usage: order [rounds [seed]]. Exit status: 0 right, 1 wrong bytes, 2 a call failed. */
#include "driver_calls.h"

#include <time.h>

enum { SAMPLE = 256, STREAMS = 6 };

static void CUDA_CB pause_a_little(void *data)
{
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static CUstream streams[STREAMS]; /* the default stream, the thread's, two blocking, two non-blocking */

static unsigned is_non_blocking(int stream)
{
    return stream >= 4 ? CU_STREAM_NON_BLOCKING : 0;
}

/* Every other one with a priority. */
static CUstream new_stream(int which)
{
    CUstream stream;
    if (which % 2)
        CHECK(DRIVER(cuStreamCreateWithPriority)(&stream, is_non_blocking(which), 0));
    else
        CHECK(DRIVER(cuStreamCreate)(&stream, is_non_blocking(which)));
    return stream;
}

/* Work that takes a while, then the block is filled and read. */
static void use(CUdeviceptr block, size_t bytes, unsigned char value, unsigned char *sample, CUstream stream)
{
    CHECK(DRIVER(cuLaunchHostFunc)(stream, pause_a_little, NULL));
    CHECK(DRIVER(cuMemsetD8Async)(block, value, bytes, stream));
    CHECK(DRIVER(cuMemcpyDtoHAsync)(sample, block + bytes - SAMPLE, SAMPLE, stream));
}

static void run_round(unsigned char value, unsigned char *sample)
{
    static const size_t sizes[] = {4096, 65536, 3 << 20, 12 << 20};
    const int which = rand() % STREAMS;
    const size_t bytes = sizes[rand() % 4];
    CUdeviceptr block;
    if (rand() % 8 == 0) {
        CHECK(DRIVER(cuMemAllocAsync)(&block, bytes, streams[which]));
        use(block, bytes, value, sample, streams[which]);
        CHECK(DRIVER(cuMemFreeAsync)(block, streams[which]));
    } else {
        CHECK(DRIVER(cuMemAlloc)(&block, bytes));
        use(block, bytes, value, sample, streams[which]);
        CHECK(DRIVER(cuMemFree)(block));
    }
    if (which >= 2 && rand() % 16 == 0) {
        CHECK(DRIVER(cuStreamDestroy)(streams[which]));
        streams[which] = new_stream(which);
    }
}

static size_t count_wrong(const unsigned char *samples, const unsigned char *values, size_t rounds)
{
    size_t wrong = 0;
    for (size_t i = 0; i < rounds; i++) {
        size_t same = 0;
        while (same < SAMPLE && samples[i * SAMPLE + same] == values[i])
            same++;
        wrong += same < SAMPLE;
    }
    return wrong;
}

int main(int count, char **arguments)
{
    const size_t rounds = count > 1 ? strtoul(arguments[1], NULL, 10) : 200;
    unsigned char *samples, *values = malloc(rounds);
    srand(count > 2 ? (unsigned)strtoul(arguments[2], NULL, 10) : 1);
    begin();
    streams[1] = CU_STREAM_PER_THREAD;
    for (int i = 2; i < STREAMS; i++)
        streams[i] = new_stream(i);
    CHECK(DRIVER(cuMemAllocHost)((void **)&samples, rounds * SAMPLE));
    for (size_t i = 0; i < rounds; i++) {
        values[i] = (unsigned char)(1 + rand() % 255);
        run_round(values[i], samples + i * SAMPLE);
    }
    CHECK(DRIVER(cuCtxSynchronize)());
    const size_t wrong = count_wrong(samples, values, rounds);
    printf("%zu of %zu wrong\n", wrong, rounds);
    free(values);
    return wrong ? 1 : 0;
}
