/* What few programs do, by name: `corners NAME`. Each was answered wrongly by a library in front of a driver. */
#include "driver_calls.h"

#include <stdint.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static void CUDA_CB pause_long(void *data)
{
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

static CUstream new_stream(void)
{
    CUstream stream;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* ---- order ---- */

static unsigned char seen[MIB];

static size_t wrong_bytes(CUdeviceptr block, unsigned char meant)
{
    size_t wrong = 0;
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuMemcpyDtoH)(seen, block, sizeof seen));
    for (size_t i = 0; i < sizeof seen; i++)
        wrong += seen[i] != meant;
    return wrong;
}

/* New memory is written on a non-blocking stream while the legacy stream is busy; then memory that was used before. */
static void write_beside_the_legacy_stream(void)
{
    CUdeviceptr block;
    const CUstream stream = new_stream();
    for (unsigned char i = 1; i <= 3; i++) {
        CHECK(DRIVER(cuLaunchHostFunc)(NULL, pause_long, NULL));
        CHECK(DRIVER(cuMemAlloc)(&block, sizeof seen));
        CHECK(DRIVER(cuMemsetD8Async)(block, i, sizeof seen, stream));
        CHECK(DRIVER(cuStreamSynchronize)(stream));
        printf("%zu wrong\n", wrong_bytes(block, i));
        CHECK(DRIVER(cuMemFree)(block));
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} corners[] = {
    {"fresh", write_beside_the_legacy_stream},
};

int main(int count, char **arguments)
{
    begin();
    for (size_t i = 0; count > 1 && i < sizeof corners / sizeof corners[0]; i++)
        if (strcmp(corners[i].name, arguments[1]) == 0) {
            corners[i].run();
            return 0;
        }
    printf("unknown corner\n");
    return 3;
}
