/* Green contexts: what they hold, the order of work in them, and their ends, by name: `green NAME`. */
#include "ends.h"

#include <unistd.h>

/* ---- what it holds ---- */

/* The green context holds the primary one, and its memory. */
static void release_before_it(void)
{
    WIDER(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
    CUdeviceptr block;
    unsigned char byte = 0;
    const CUgreenCtx green = new_green();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 7, MIB));
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    printf("active: %d", is_active(0));
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block + MIB - 1, 1));
    printf(", read %d\n", byte);
    CHECK(cuGreenCtxDestroy_found(green));
    printf("active: %d, another release gave %d\n", is_active(0), DRIVER(cuDevicePrimaryCtxRelease)(0));
}

/* Its streams are no streams any more. */
static void end_a_green_stream(void)
{
    WIDER(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
    WIDER(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050);
    CUstream stream;
    const CUgreenCtx green = new_green();
    make_barrier();
    CHECK(cuGreenCtxStreamCreate_found(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    make_barrier();
    CHECK(cuGreenCtxDestroy_found(green));
    make_barrier();
    printf("went on\n");
}

/* ---- the order of work ---- */

/* The work of a stream whose context has ended is under way still, and the block is given out again. */
static void free_behind_a_green_stream(void)
{
    WIDER(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
    WIDER(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050);
    CUstream reader, writer;
    const CUdeviceptr block = new_block();
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    const CUgreenCtx green = new_green();
    CHECK(cuGreenCtxStreamCreate_found(&reader, green, CU_STREAM_NON_BLOCKING, 0));
    read_late(block, reader);
    CHECK(cuGreenCtxDestroy_found(green));
    CHECK(DRIVER(cuMemFree)(block));
    write_again(writer, false);
    printf("%zu wrong\n", wrong_bytes());
}

/* Of a green context that is older than the stack, and of one that is younger. */
static void read_on_green_default_streams(void)
{
    WIDER(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
    static const CUstream streams[] = {NULL, CU_STREAM_LEGACY}; /* an H200 refuses CU_STREAM_PER_THREAD there by 400 */
    CUgreenCtx green[2];
    CUdeviceptr block;
    free_order order = {0};
    CHECK(DRIVER(cuCtxGetCurrent)(&order.first));
    CHECK(DRIVER(cuStreamCreate)(&order.writer, CU_STREAM_NON_BLOCKING));
    green[0] = new_green();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    green[1] = new_green();
    for (size_t g = 0; g < 2; g++) {
        for (unsigned i = 0; i < 6; i++)
            printf(" %zu", read_on_green(context_of(green[g]), &order, streams[i / 3], i % 3));
        printf("\n");
        CHECK(cuGreenCtxDestroy_found(green[g]));
    }
    CHECK(DRIVER(cuMemFree)(block));
}

/* The last work on its default stream. */
static void free_behind_a_green_context(void)
{
    WIDER(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
    CUcontext first;
    CUstream writer;
    const CUdeviceptr block = new_block();
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    const CUgreenCtx green = new_green();
    CHECK(DRIVER(cuCtxSetCurrent)(context_of(green)));
    read_late(block, NULL);
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(cuGreenCtxDestroy_found(green));
    CHECK(DRIVER(cuMemFree)(block));
    write_again(writer, false);
    printf("%zu wrong\n", wrong_bytes());
}

/* ---- resets ---- */

/* It ends with the primary one; what is freed behind the reset asks it for nothing. */
static void reset_below(bool has_stack)
{
    CUcontext again;
    const CUcontext own = context_of(new_green());
    if (has_stack)
        make_barrier();
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(again));
    if (has_stack)
        make_barrier();
    alarm(30); /* what waits until the handle of before is forgotten */
    CHECK(context_of(new_green()) != own);
    make_barrier();
    printf("went on\n");
}

static void reset_below_a_green_context(void)
{
    reset_below(true);
}

static void reset_before_the_first_request(void)
{
    reset_below(false);
}

/* ---- captures ---- */

/* A capture there goes on beside memory, streams and contexts that come and go. */
static void capture_in_a_green_context(void)
{
    WIDER(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050);
    CUcontext first, own;
    CUdeviceptr block, seen_block;
    CUstream stream, other;
    CUgraph graph;
    const CUgreenCtx green = new_green();
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(cuGreenCtxStreamCreate_found(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemAlloc)(&seen_block, MIB));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuMemsetD8Async)(seen_block, 1, MIB, stream));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuStreamDestroy)(other));
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    CHECK(DRIVER(cuCtxDestroy)(own));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    (void)new_green();
    CHECK(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuStreamBeginCapture)(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuStreamEndCapture)(other, &graph));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamEndCapture)(stream, &graph));
    make_barrier();
    printf("went on\n");
}

/* Made while a stream is captured, it may write what another stream still reads. */
static void make_green_beside_a_capture(void)
{
    CUcontext first;
    CUstream reader, captured;
    CUgraph graph;
    CUdeviceptr block = new_block();
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuStreamCreate)(&reader, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuStreamCreate)(&captured, CU_STREAM_NON_BLOCKING));
    read_late(block, reader);
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuCtxSetCurrent)(context_of(new_green())));
    CHECK(DRIVER(cuMemsetD8Async)(block, 2, BYTES, NULL));
    CHECK(DRIVER(cuStreamSynchronize)(NULL));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(DRIVER(cuStreamEndCapture)(captured, &graph));
    printf("%zu wrong\n", wrong_bytes());
}

/* What is asked for while it is current is the driver's. */
static void ask_while_it_is_current(void)
{
    CUdeviceptr block;
    for (int i = 0; i < 3; i++)
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuCtxSetCurrent)(context_of(new_green())));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, NULL));
    printf("went on\n");
}

static const named_way ways[] = {
    {"release", release_before_it},
    {"stream", end_a_green_stream},
    {"reads", free_behind_a_green_stream},
    {"default", read_on_green_default_streams},
    {"last", free_behind_a_green_context},
    {"reset", reset_below_a_green_context},
    {"reset-first", reset_before_the_first_request},
    {"captured", capture_in_a_green_context},
    {"beside-capture", make_green_beside_a_capture},
    {"asked", ask_while_it_is_current},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
