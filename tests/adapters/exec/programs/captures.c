/* Ends of captures, by name: `captures NAME`. In a capture memory is the driver's, behind its end the stack's. */
#include "ends.h"

/* Numbers of the stack's blocks are above all of the driver's. */
static void say_source(const char *when, int result)
{
    CUdeviceptr block;
    unsigned long long number;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuPointerGetAttribute)(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    printf("%s: %d, %s\n", when, result, number >> 63 ? "the stack" : "the driver");
    CHECK(DRIVER(cuMemFree)(block));
}

static CUstream begin_capture(CUstreamCaptureMode mode)
{
    CUstream stream;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, mode));
    return stream;
}

static int end_capture(CUstream stream)
{
    CUgraph made;
    return (int)DRIVER(cuStreamEndCapture)(stream, &made);
}

/* ---- on another thread ---- */

typedef struct end_there {
    CUstream stream;
    CUcontext context;
    int result;
} end_there;

static void *end_as_another_thread(void *data)
{
    end_there *there = data;
    CHECK(DRIVER(cuCtxSetCurrent)(there->context));
    there->result = end_capture(there->stream);
    return NULL;
}

static int end_elsewhere(CUstream stream)
{
    end_there there = {.stream = stream};
    pthread_t thread;
    CHECK(DRIVER(cuCtxGetCurrent)(&there.context));
    CHECK(pthread_create(&thread, NULL, end_as_another_thread, &there));
    CHECK(pthread_join(thread, NULL));
    return there.result;
}

/* ---- ways ---- */

static void end_in_failing_calls(void)
{
    say_source("before", 0);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    say_source("by another thread", end_elsewhere(stream));
    stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    (void)DRIVER(cuStreamSynchronize)(stream);
    say_source("invalidated", end_capture(stream));
    say_source("not begun", end_capture(stream));
}

/* Each thread has a stream of its own by that handle, in each context. */
static void end_other_default_streams(void)
{
    CUcontext own;
    CHECK(DRIVER(cuCtxGetCurrent)(&own));
    CHECK(DRIVER(cuStreamBeginCapture)(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    say_source("another thread's", end_elsewhere(CU_STREAM_PER_THREAD));
    CHECK(DRIVER(cuCtxSetCurrent)(NULL));
    const int without_context = end_capture(CU_STREAM_PER_THREAD);
    CHECK(DRIVER(cuCtxSetCurrent)(own));
    say_source("of no context", without_context);
    say_source("its own", end_capture(CU_STREAM_PER_THREAD));
}

/* Another context is current as the capture begins than the one that the stream ends with. */
static void end_with_a_green_context(void)
{
    WIDER(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
    WIDER(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050);
    CUstream stream;
    say_source("before", 0);
    const CUgreenCtx green = new_green();
    CHECK(cuGreenCtxStreamCreate_found(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    say_source("in it", 0);
    say_source("behind it", (int)cuGreenCtxDestroy_found(green));
}

static const named_way ways[] = {
    {"failing", end_in_failing_calls},
    {"default-streams", end_other_default_streams},
    {"green", end_with_a_green_context},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
