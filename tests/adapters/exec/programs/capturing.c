/* A blocking stream is captured again and again, while another thread, whose capture mode is relaxed, asks for memory
 * and frees it: the driver's own calls spoil no capture then. The driver takes its time to say whether there is one.
 *
 *   capturing          there is a non-blocking stream, so that frees wait for a barrier
 *   capturing alone    there is none
 *
 * Exit status: 0 right, 1 a capture was spoiled, 2 another call failed. */
#include "wider_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { BYTES = 1 << 20, CAPTURES = 200, LATE = 200 /* microseconds */ };

CUresult CUDAAPI cuNewLateAnswers(unsigned microseconds);

static CUcontext context;
static CUstream captured;
static CUdeviceptr block;
static atomic_bool over;

static void *ask_and_free(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr asked;
    size_t unused_bytes, total;
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    WIDER(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010);
    CHECK(cuThreadExchangeStreamCaptureMode_found(&mode));
    while (!atomic_load(&over)) {
        CHECK(DRIVER(cuMemAlloc)(&asked, BYTES));
        CHECK(DRIVER(cuMemFree)(asked));
        CHECK(DRIVER(cuMemGetInfo)(&unused_bytes, &total)); /* frees that wait are made first */
    }
    return unused;
}

static void let_others_go_on(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2 * LATE * 1000}, NULL);
}

static bool capture_is_spoiled(void)
{
    CUgraph graph = NULL;
    CHECK(DRIVER(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    let_others_go_on();
    const CUresult filled = DRIVER(cuMemsetD8Async)(block, 1, BYTES, captured);
    const CUresult ended = DRIVER(cuStreamEndCapture)(captured, &graph);
    if (filled == CUDA_SUCCESS && ended == CUDA_SUCCESS)
        CHECK(DRIVER(cuGraphDestroy)(graph));
    return filled != CUDA_SUCCESS || ended != CUDA_SUCCESS;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    CUstream beside;
    const bool alone = count > 1 && strcmp(arguments[1], "alone") == 0;
    bool spoiled = false;
    begin();
    WIDER(cuNewLateAnswers, "cuNewLateAnswers", 13000);
    CHECK(DRIVER(cuCtxGetCurrent)(&context));
    CHECK(DRIVER(cuStreamCreate)(&captured, CU_STREAM_DEFAULT));
    if (!alone)
        CHECK(DRIVER(cuStreamCreate)(&beside, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    if (pthread_create(&thread, NULL, ask_and_free, NULL) != 0)
        return 2;
    CHECK(cuNewLateAnswers_found(LATE));
    for (int i = 0; i < CAPTURES && !spoiled; i++) {
        let_others_go_on();
        spoiled = capture_is_spoiled();
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    puts(spoiled ? "a capture was spoiled" : "no capture was spoiled");
    return spoiled;
}
