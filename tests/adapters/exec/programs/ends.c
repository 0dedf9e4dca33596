/* The ends of contexts, on a driver with more of them (wider_driver.c), by name: `ends NAME`. */
#include "ways.h"
#include "wider_calls.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

/* ---- green contexts ---- */

static CUgreenCtx new_green(void)
{
    WIDER(cuGreenCtxCreate, "cuGreenCtxCreate", 12040);
    WIDER(cuDeviceGetDevResource, "cuDeviceGetDevResource", 12040);
    WIDER(cuDevResourceGenerateDesc, "cuDevResourceGenerateDesc", 12040);
    CUdevResource resource;
    CUdevResourceDesc all;
    CUgreenCtx green;
    CHECK(cuDeviceGetDevResource_found(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevResourceGenerateDesc_found(&all, &resource, 1));
    CHECK(cuGreenCtxCreate_found(&green, all, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static int is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    CHECK(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active));
    return active;
}

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

CUresult CUDAAPI cuNewReferences(int *held, int *given_back);

static void say_references(const char *when)
{
    WIDER(cuNewReferences, "cuNewReferences", 13000);
    static int before; /* given back at the call before; 0: the first one */
    int held, given_back;
    CHECK(cuNewReferences_found(&held, &given_back));
    printf("%s: %d held, %d given back\n", when, held, before ? given_back - before : 0);
    before = given_back;
}

/* Of the primary context, this program's and Strata's. A reference that goes and comes back shows in the second count.
 */
static void count_references(void)
{
    WIDER(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
    CUcontext again;
    CUdeviceptr block;
    const CUgreenCtx green = new_green();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
    say_references("retained twice");
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    say_references("released once");
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    say_references("released twice");
    CHECK(cuGreenCtxDestroy_found(green));
    say_references("without the green one");
}

CUresult CUDAAPI cuNewBegins(int count);

/* Another module begins the context anew at once: its reference is the only one that is left. */
static void release_beside_a_begin(void)
{
    WIDER(cuNewBegins, "cuNewBegins", 13000);
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(cuNewBegins_found(1));
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    say_references("begun anew");
}

/* Frees and asks: what waits is freed behind a barrier of all streams. */
static void make_barrier(void)
{
    CUdeviceptr block;
    size_t free_bytes, total;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
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

static void CUDA_CB pause_long(void *data)
{
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

enum { BYTES = 32 << 20 }; /* more than frees that wait may hold back */

static unsigned char *seen; /* of BYTES */

static CUdeviceptr new_block(void)
{
    CUdeviceptr block;
    if (!seen)
        CHECK(DRIVER(cuMemAllocHost)((void **)&seen, BYTES));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
    CHECK(DRIVER(cuCtxSynchronize)());
    return block;
}

static void read_late(CUdeviceptr block, CUstream reader)
{
    CHECK(DRIVER(cuLaunchHostFunc)(reader, pause_long, NULL));
    CHECK(DRIVER(cuMemcpyDtoHAsync)(seen, block, BYTES, reader));
}

/* The memory is given out again, and written on a stream that waits for nothing. */
static CUdeviceptr write_again(CUstream writer, bool async)
{
    CUdeviceptr block;
    CHECK(async ? DRIVER(cuMemAllocAsync)(&block, BYTES, writer) : DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8Async)(block, 2, BYTES, writer));
    CHECK(DRIVER(cuStreamSynchronize)(writer));
    return block;
}

static size_t wrong_bytes(void)
{
    size_t wrong = 0;
    CHECK(DRIVER(cuCtxSynchronize)());
    for (size_t i = 0; i < BYTES; i++)
        wrong += seen[i] != 1;
    return wrong;
}

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

static CUcontext context_of(CUgreenCtx green)
{
    WIDER(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040);
    CUcontext context;
    CHECK(cuCtxFromGreenCtx_found(&context, green));
    return context;
}

typedef struct free_order {
    CUcontext first;
    CUstream writer;
    CUdeviceptr block;
} free_order;

static void *free_and_write(void *data)
{
    free_order *order = data;
    CHECK(DRIVER(cuCtxSetCurrent)(order->first));
    CHECK(DRIVER(cuMemFree)(order->block));
    order->block = write_again(order->writer, false);
    return NULL;
}

/* Wrong bytes: freed in the green context, in either way, and on another thread while that is current here. */
static size_t read_on_green(CUcontext own, const free_order *with, CUstream stream, unsigned way)
{
    free_order order = *with;
    pthread_t thread;
    order.block = new_block();
    CHECK(DRIVER(cuCtxSetCurrent)(own));
    read_late(order.block, stream);
    if (way == 2) {
        CHECK(pthread_create(&thread, NULL, free_and_write, &order));
        CHECK(pthread_join(thread, NULL));
    } else {
        CHECK(way ? DRIVER(cuMemFreeAsync)(order.block, stream) : DRIVER(cuMemFree)(order.block));
        CHECK(DRIVER(cuCtxSetCurrent)(order.first));
        order.block = write_again(order.writer, way == 1);
        CHECK(DRIVER(cuCtxSetCurrent)(own));
    }
    const size_t wrong = wrong_bytes();
    CHECK(DRIVER(cuCtxSetCurrent)(order.first));
    CHECK(DRIVER(cuMemFree)(order.block));
    return wrong;
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

/* ---- contexts of the program's own ---- */

static CUcontext new_context_with_stream(void)
{
    CUcontext context, before;
    CUstream stream;
    CHECK(DRIVER(cuCtxGetCurrent)(&before));
    CHECK(DRIVER(cuCtxCreate)(&context, 0, 0));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuCtxSetCurrent)(before));
    return context;
}

static void *destroy(void *context)
{
    CHECK(DRIVER(cuCtxDestroy)(context)); /* which takes its time behind the end of the streams */
    return NULL;
}

static void end_beside_another_thread(void)
{
    pthread_t thread;
    make_barrier();
    const CUcontext context = new_context_with_stream();
    make_barrier();
    CHECK(pthread_create(&thread, NULL, destroy, context));
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    make_barrier();
    CHECK(pthread_join(thread, NULL));
    make_barrier();
    printf("went on\n");
}

/* By the handle of one that another thread is about to forget. Its memory is counted. */
static void make_beside_another_thread(void)
{
    pthread_t thread;
    CUcontext context, again;
    CUdeviceptr block;
    CHECK(DRIVER(cuCtxCreate)(&context, 0, 0));
    CHECK(pthread_create(&thread, NULL, destroy, context));
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    CHECK(DRIVER(cuCtxCreate)(&again, 0, 0));
    printf("%s handle:", again == context ? "the same" : "another");
    printf(" %d", DRIVER(cuMemAlloc)(&block, 60 * MIB));
    CHECK(pthread_join(thread, NULL));
    printf(" %d\n", DRIVER(cuMemAlloc)(&block, 60 * MIB));
}

static void detach(void)
{
    WIDER(cuCtxDetach, "cuCtxDetach", 2000);
    CUcontext before;
    make_barrier();
    CHECK(DRIVER(cuCtxGetCurrent)(&before));
    const CUcontext context = new_context_with_stream();
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(cuCtxDetach_found(context));
    CHECK(DRIVER(cuCtxSetCurrent)(before));
    make_barrier();
    printf("went on\n");
}

/* Attached once more, it stays, and its work is ordered as before. */
static void detach_once(void)
{
    WIDER(cuCtxAttach, "cuCtxAttach", 2000);
    WIDER(cuCtxDetach, "cuCtxDetach", 2000);
    CUcontext own, before;
    CUstream writer;
    const CUdeviceptr block = new_block();
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuCtxGetCurrent)(&before));
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    CHECK(cuCtxAttach_found(&own, 0));
    CHECK(cuCtxDetach_found(own));
    read_late(block, NULL);
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuCtxSetCurrent)(before));
    write_again(writer, false);
    CHECK(DRIVER(cuCtxSetCurrent)(own));
    printf("%zu wrong\n", wrong_bytes());
}

/* ---- resets ---- */

static void *reset(void *device)
{
    CHECK(DRIVER(cuDevicePrimaryCtxReset)((CUdevice)(uintptr_t)device));
    return NULL;
}

/* What asks for a report meanwhile looks at no stream that has ended, also where the context has begun anew. */
static void ask_beside_a_reset(void)
{
    pthread_t thread;
    CUcontext again;
    CUdeviceptr block;
    CUstream stream;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(pthread_create(&thread, NULL, reset, NULL));
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
    raise(SIGUSR1);
    CHECK(pthread_join(thread, NULL));
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* the report is written */
    printf("went on\n");
}

/* The reset's call goes on behind the end of the context, which begins anew. */
static pthread_t begin_anew_beside(CUdevice device)
{
    pthread_t thread;
    CUcontext context;
    CHECK(pthread_create(&thread, NULL, reset, (void *)(uintptr_t)device));
    while (is_active(device))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    return thread;
}

/* Memory of the context that has begun anew stays, once the reset's call returns, too. */
static void keep_memory_beside_a_reset(void)
{
    CUdeviceptr block;
    unsigned char byte = 0;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const pthread_t thread = begin_anew_beside(0);
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 7, MIB));
    CHECK(pthread_join(thread, NULL));
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block + MIB - 1, 1));
    printf("read %d", byte);
    printf(", free gave %d\n", DRIVER(cuMemFree)(block));
}

CUresult CUDAAPI cuNewReset(CUdevice device);

static void reset_unseen(void)
{
    WIDER(cuNewReset, "cuNewReset", 13000);
    CUcontext context;
    CUdeviceptr block;
    CHECK(cuNewReset_found(0));
    printf("without a context: %s\n", DRIVER(cuMemAllocAsync)(&block, 64 * MIB, NULL) ? "refused" : "given");
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
}

static void ask_behind_a_reset(void)
{
    CUdeviceptr block;
    unsigned char byte = 0;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, NULL));
    reset_unseen();
    CHECK(DRIVER(cuMemAllocAsync)(&block, 8 * MIB, NULL));
    CHECK(DRIVER(cuMemsetD8)(block, 3, 8 * MIB));
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block + MIB, 1));
    reset_unseen();
    CHECK(DRIVER(cuMemAlloc)(&block, 8 * MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 3, 8 * MIB));
    printf("went on, read %d\n", byte);
}

/* The context begins anew at once, so that no call fails for the reset. */
static void reset_unseen_at_once(void)
{
    WIDER(cuNewReset, "cuNewReset", 13000);
    CUcontext context;
    CHECK(cuNewReset_found(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
}

/* A block of the size that was freed last. */
static void hit_behind_a_reset(void)
{
    CUdeviceptr block, kept;
    CUstream stream;
    for (int i = 0; i < 2; i++) {
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(DRIVER(cuMemAlloc)(&kept, MIB));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, stream));
        make_barrier();
        CHECK(DRIVER(cuMemFree)(kept));
        CHECK(DRIVER(cuMemFreeAsync)(block, stream));
        reset_unseen_at_once();
        CHECK(i ? DRIVER(cuMemAlloc)(&block, MIB) : DRIVER(cuMemAllocAsync)(&block, MIB, NULL));
        CHECK(DRIVER(cuMemsetD8)(block, 3, MIB));
        CHECK(DRIVER(cuMemFree)(block));
    }
    printf("went on\n");
}

/* Frees of blocks of before, a capture, and a question, each as the first call: none asks a stream of before. */
static void free_behind_an_unseen_reset(void)
{
    enum { BLOCKS = 1100 }; /* more than frees that wait for one barrier */
    static CUdeviceptr blocks[BLOCKS];
    CUstream stream;
    for (int i = 0; i < BLOCKS; i++)
        CHECK(DRIVER(cuMemAlloc)(&blocks[i], 512));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    reset_unseen_at_once();
    for (int i = 0; i < BLOCKS; i++)
        (void)DRIVER(cuMemFree)(blocks[i]);
    printf("went on\n");
}

static void capture_behind_an_unseen_reset(void)
{
    CUdeviceptr block;
    CUstream stream;
    CUgraph graph;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    for (int i = 0; i < 2; i++) /* one handle is another stream's behind the reset */
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    reset_unseen_at_once();
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, CU_STREAM_PER_THREAD)); /* that is not captured */
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8Async)(block, 1, MIB, stream));
    CHECK(DRIVER(cuStreamEndCapture)(stream, &graph));
    CHECK(DRIVER(cuMemFree)(block));
    make_barrier();
    printf("went on\n");
}

static void ask_for_memory_behind_an_unseen_reset(void)
{
    CUdeviceptr block;
    CUstream stream;
    size_t free_bytes, total;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemAlloc)(&block, 59 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    reset_unseen_at_once();
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    printf("%zu of %zu MiB free,", free_bytes / MIB, total / MIB);
    CHECK(DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
    reset_unseen_at_once();
    CHECK(DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
    printf(" %d", DRIVER(cuMemAlloc)(&block, 60 * MIB));
    printf(" %d\n", DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
}

/* What was ordered before is gone with the context. */
static void make_behind_an_unseen_reset(void)
{
    CUstream stream;
    CUcontext own, first;
    for (int i = 0; i < 2; i++) {
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        make_barrier();
        reset_unseen();
        if (i)
            CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(DRIVER(cuCtxGetCurrent)(&first));
        CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(first));
        make_barrier();
    }
    printf("went on\n");
}

/* The first request, which finds the reset; then the reset's call returns. */
static void find_reset(pthread_t thread)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(pthread_join(thread, NULL));
}

static void stream_beside_a_reset(void)
{
    CUdeviceptr block;
    CUstream reader, writer;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const pthread_t thread = begin_anew_beside(0);
    CHECK(DRIVER(cuStreamCreate)(&reader, CU_STREAM_NON_BLOCKING));
    find_reset(thread);
    block = new_block();
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    read_late(block, reader);
    CHECK(DRIVER(cuMemFree)(block));
    write_again(writer, false);
    printf("%zu wrong\n", wrong_bytes());
}

static void green_context_beside_a_reset(void)
{
    CUdeviceptr block;
    free_order order = {0};
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const pthread_t thread = begin_anew_beside(0);
    CHECK(DRIVER(cuCtxGetCurrent)(&order.first));
    const CUgreenCtx green = new_green();
    find_reset(thread);
    CHECK(DRIVER(cuStreamCreate)(&order.writer, CU_STREAM_NON_BLOCKING));
    printf("%zu wrong\n", read_on_green(context_of(green), &order, NULL, 0));
}

/* With a budget that has room for one of them. The first one goes with the context. */
static void charge_beside_a_reset(void)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
    const pthread_t thread = begin_anew_beside(0);
    printf("%d", DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
    find_reset(thread);
    printf(" %d\n", DRIVER(cuMemAllocManaged)(&block, 60 * MIB, CU_MEM_ATTACH_GLOBAL));
}

/* The context of device 1 begins anew, and reads memory of device 0. */
static void peer_beside_a_reset(void)
{
    CUcontext peer;
    CUdeviceptr block;
    free_order order = {0};
    CHECK(DRIVER(cuCtxGetCurrent)(&order.first));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamCreate)(&order.writer, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&peer, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(peer));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const pthread_t thread = begin_anew_beside(1);
    CHECK(DRIVER(cuCtxEnablePeerAccess)(order.first, 0));
    find_reset(thread);
    CHECK(DRIVER(cuCtxGetCurrent)(&peer));
    CHECK(DRIVER(cuCtxSetCurrent)(order.first));
    printf("%zu wrong\n", read_on_green(peer, &order, NULL, 0));
}

/* A stream of a context of device 1 ends before its work, which reads memory of device 0. */
static void end_a_peers_stream(void)
{
    CUcontext first, peer;
    CUstream reader, writer;
    const CUdeviceptr block = new_block();
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuCtxCreate)(&peer, 0, 1));
    CHECK(DRIVER(cuCtxEnablePeerAccess)(first, 0));
    CHECK(DRIVER(cuStreamCreate)(&reader, CU_STREAM_NON_BLOCKING));
    read_late(block, reader);
    CHECK(DRIVER(cuStreamDestroy)(reader));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(DRIVER(cuMemFree)(block));
    write_again(writer, false);
    CHECK(DRIVER(cuCtxSetCurrent)(peer));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    printf("%zu wrong\n", wrong_bytes());
}

/* With a budget that has room for one block. */
static void make_and_free(int count)
{
    CUdeviceptr block;
    for (int i = 0; i < count; i++) {
        printf(" %d", DRIVER(cuMemAlloc)(&block, 60 * MIB));
        printf(" %d", DRIVER(cuMemFree)(block));
    }
}

/* Its context had access. */
static void free_behind_a_peers_reset(void)
{
    CUcontext first, peer;
    CUdeviceptr block;
    CUstream stream;
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&peer, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(peer));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuCtxEnablePeerAccess)(first, 0));
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(1));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    make_and_free(3);
    printf("\n");
}

/* Each is free behind a barrier of the context that has begun anew. */
static void free_behind_a_reset(void)
{
    CUcontext again;
    CUstream stream;
    for (int round = 0; round < 2; round++) {
        for (int i = round; i < 3; i++) /* the last one's handle is none behind the reset */
            CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        make_and_free(3);
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(again));
    }
    printf("\n");
}

CUresult CUDAAPI cuNewEvents(int *count);

static int events_so_far(void)
{
    WIDER(cuNewEvents, "cuNewEvents", 13000);
    int count;
    CHECK(cuNewEvents_found(&count));
    return count;
}

/* By one event for all: how many are made for four barriers behind a reset. */
static void order_behind_a_reset(void)
{
    CUcontext again;
    CUdeviceptr block;
    CUstream stream;
    int before = 0;
    size_t free_bytes, total;
    for (int i = 0; i < 2; i++) {
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        before = events_so_far();
        for (int barriers = 0; barriers < 4; barriers++) {
            CHECK(DRIVER(cuMemAlloc)(&block, MIB));
            CHECK(DRIVER(cuLaunchHostFunc)(stream, pause_long, NULL));
            CHECK(DRIVER(cuMemFree)(block));
            CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
        }
        if (i)
            break;
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(again));
    }
    printf("%d made\n", events_so_far() - before);
}

CUresult CUDAAPI cuNewQueries(int *count);

/* A barrier asks each stream. */
static int queries_so_far(void)
{
    WIDER(cuNewQueries, "cuNewQueries", 13000);
    int count;
    CHECK(cuNewQueries_found(&count));
    return count;
}

/* What was live, the most that was, and the frees that no barrier had followed yet are those of the context that has
 * begun anew: no request needs a barrier, frees share one, and what waits is held to what has been live since. */
static void count_behind_a_reset(void)
{
    CUcontext again;
    CUdeviceptr block;
    CUstream stream;
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuMemAlloc)(&block, 2048 * MIB)); /* a part of which is more than the blocks below */
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(again));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    const int before = queries_so_far();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    printf("%d for a request", queries_so_far() - before);
    for (int i = 0; i < 8; i++) {
        CHECK(DRIVER(cuMemFree)(block));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    }
    printf(", %d for frees\n", queries_so_far() - before);
    CHECK(DRIVER(cuMemAlloc)(&block, 32 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemAlloc)(&block, 32 * MIB));
}

CUresult CUDAAPI cuNewDelay(unsigned milliseconds);

/* A stream of device 1 reads memory of device 0, which is freed while device 1 is about to be reset. */
static void free_before_a_peers_reset(void)
{
    WIDER(cuNewDelay, "cuNewDelay", 13000);
    CUcontext first, peer;
    CUstream reader, writer;
    pthread_t thread;
    CUdeviceptr other;
    const CUdeviceptr block = new_block();
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&peer, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(peer));
    CHECK(DRIVER(cuMemAlloc)(&other, MIB));
    CHECK(DRIVER(cuCtxEnablePeerAccess)(first, 0));
    CHECK(DRIVER(cuStreamCreate)(&reader, CU_STREAM_NON_BLOCKING));
    read_late(block, reader);
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(cuNewDelay_found(300));
    CHECK(pthread_create(&thread, NULL, reset, (void *)(uintptr_t)1));
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    CHECK(DRIVER(cuMemFree)(block));
    write_again(writer, false);
    CHECK(pthread_join(thread, NULL));
    printf("%zu wrong\n", wrong_bytes());
}

/* The first request behind a reset that was not seen waits for what a stream of before has freed, and is served. */
static void keep_what_a_finding_request_gave(void)
{
    WIDER(cuNewReset, "cuNewReset", 13000);
    CUcontext again;
    CUdeviceptr block, other;
    CUstream stream;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamCreate)(&stream, 0));
    CHECK(DRIVER(cuMemAllocAsync)(&block, BYTES, stream));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(cuNewReset_found(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(again));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemAlloc)(&other, BYTES));
    CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
    printf("free gave %d\n", DRIVER(cuMemFree)(block));
}

CUresult CUDAAPI cuNewResetsInside(int count);

/* The context ends in the middle of a request, and again while it is made once more. */
static void reset_inside_requests(void)
{
    WIDER(cuNewResetsInside, "cuNewResetsInside", 13000);
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(cuNewResetsInside_found(4));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 1, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(cuNewResetsInside_found(4));
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, NULL));
    CHECK(DRIVER(cuMemsetD8)(block, 1, MIB));
    CHECK(DRIVER(cuMemFreeAsync)(block, NULL));
    CHECK(cuNewResetsInside_found(100));
    printf("went on, and gave up with %d\n", DRIVER(cuMemAlloc)(&block, MIB));
}

static const named_way ways[] = {
    {"green-release", release_before_it},
    {"green-stream", end_a_green_stream},
    {"destroy", end_beside_another_thread},
    {"detach", detach},
    {"detach-once", detach_once},
    {"reset", ask_behind_a_reset},
    {"references", count_references},
    {"begun-anew", release_beside_a_begin},
    {"green-reads", free_behind_a_green_stream},
    {"green-default", read_on_green_default_streams},
    {"green-last", free_behind_a_green_context},
    {"green-reset", reset_below_a_green_context},
    {"green-beside-capture", make_green_beside_a_capture},
    {"green-reset-first", reset_before_the_first_request},
    {"green-captured", capture_in_a_green_context},
    {"reset-kept", keep_memory_beside_a_reset},
    {"reset-hit", hit_behind_a_reset},
    {"reset-freed", free_behind_an_unseen_reset},
    {"reset-captured", capture_behind_an_unseen_reset},
    {"reset-asked", ask_for_memory_behind_an_unseen_reset},
    {"reset-made", make_behind_an_unseen_reset},
    {"reset-stream", stream_beside_a_reset},
    {"reset-green", green_context_beside_a_reset},
    {"reset-charge", charge_beside_a_reset},
    {"reset-peer", peer_beside_a_reset},
    {"peer-stream", end_a_peers_stream},
    {"reset-peer-frees", free_behind_a_peers_reset},
    {"reset-frees", free_behind_a_reset},
    {"reset-counts", count_behind_a_reset},
    {"reset-inside", reset_inside_requests},
    {"reset-events", order_behind_a_reset},
    {"reset-of-peer", free_before_a_peers_reset},
    {"reset-finding", keep_what_a_finding_request_gave},
    {"reset-beside", ask_beside_a_reset},
    {"made-again", make_beside_another_thread},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
