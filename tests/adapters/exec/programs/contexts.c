/* Several contexts of one device, and what belongs to them, by name: `contexts NAME [COUNT]`, with a count of repeats
 * where threads repeat. */
#include "driver_calls.h"
#include "ways.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* ---- a budget ---- */

static CUdeviceptr take(size_t mebibytes)
{
    CUdeviceptr block = 0;
    printf(" %d", DRIVER(cuMemAlloc)(&block, mebibytes * MIB));
    return block;
}

static void enter_primary(void)
{
    CUcontext primary;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
}

/* A context that is older than all memory keeps its part while primary ones come and go. */
static void keep_memory_beside_primary_contexts(void)
{
    CUcontext own;
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0)); /* that of begin() */
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    const CUdeviceptr kept = take(60);
    for (int i = 0; i < 3; i++) {
        enter_primary();
        take(60);
        take(30);
        CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    }
    CHECK(DRIVER(cuCtxSetCurrent)(own));
    take(60);
    CHECK(DRIVER(cuMemFree)(kept));
    take(60);
    CHECK(DRIVER(cuCtxDestroy)(own));
    enter_primary();
    take(90);
    printf("\n");
}

/* Physical memory outlives the primary context. */
static void keep_a_handle_behind_resets(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CHECK(DRIVER(cuMemCreate)(&handle, 60 * MIB, &properties, 0));
    for (int i = 0; i < 3; i++) {
        take(30);
        take(30);
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        enter_primary();
    }
    CHECK(DRIVER(cuMemRelease)(handle));
    take(90);
    printf("\n");
}

/* Of the driver's pool: freed behind the end of its context, which the driver may refuse, and not at all. */
static void end_contexts_of_pooled_memory(void)
{
    CUcontext own, first;
    CUdeviceptr block;
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    for (int i = 0; i < 4; i++) {
        CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
        printf(" %d", DRIVER(cuMemAllocAsync)(&block, 60 * MIB, NULL));
        CHECK(DRIVER(cuCtxSynchronize)());
        CHECK(DRIVER(cuCtxDestroy)(own));
        CHECK(DRIVER(cuCtxSetCurrent)(first));
        if (i % 2)
            (void)DRIVER(cuMemFree)(block);
    }
    take(60);
    printf("\n");
}

/* ---- memory that the stack keeps ---- */

/* A graph with one node that makes memory, launched once. */
static CUresult launch_with_memory(size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
                                         .bytesize = bytes};
    CUgraph graph;
    CUgraphExec launched;
    CUgraphNode made;
    CHECK(DRIVER(cuGraphCreate)(&graph, 0));
    CHECK(DRIVER(cuGraphAddMemAllocNode)(&made, graph, NULL, 0, &params));
    CHECK(DRIVER(cuGraphInstantiate)(&launched, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    const CUresult result = DRIVER(cuGraphLaunch)(launched, NULL);
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuGraphExecDestroy)(launched));
    CHECK(DRIVER(cuGraphDestroy)(graph));
    if (result == CUDA_SUCCESS)
        CHECK(DRIVER(cuMemFree)(params.dptr));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuDeviceGraphMemTrim)(0));
    return result;
}

static CUresult make_physical(size_t bytes)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    const CUresult result = DRIVER(cuMemCreate)(&handle, bytes, &properties, 0);
    if (result == CUDA_SUCCESS)
        CHECK(DRIVER(cuMemRelease)(handle));
    return result;
}

static CUresult make_pitched(size_t bytes)
{
    CUdeviceptr block;
    size_t pitch;
    const CUresult result = DRIVER(cuMemAllocPitch)(&block, &pitch, MIB, bytes / MIB, 16);
    if (result == CUDA_SUCCESS)
        CHECK(DRIVER(cuMemFree)(block));
    return result;
}

static CUresult make_on_a_stream(size_t bytes)
{
    CUdeviceptr block;
    const CUresult result = DRIVER(cuMemAllocAsync)(&block, bytes, NULL);
    if (result == CUDA_SUCCESS)
        CHECK(DRIVER(cuMemFreeAsync)(block, NULL));
    CHECK(DRIVER(cuCtxSynchronize)());
    return result;
}

static CUresult make_linear(size_t bytes)
{
    CUdeviceptr block;
    const CUresult result = DRIVER(cuMemAlloc)(&block, bytes);
    if (result == CUDA_SUCCESS)
        CHECK(DRIVER(cuMemFree)(block));
    return result;
}

/* More than half of the device, once in each way, each time after the primary context has had and freed as much. Keeps
 * 2 MiB in a context of its own. */
static void take_what_the_primary_context_freed(void)
{
    static CUresult (*const makers[])(size_t bytes) = {make_linear, make_on_a_stream, make_pitched, make_physical,
                                                       launch_with_memory};
    size_t free_bytes, total;
    CUcontext own, primary;
    CHECK(DRIVER(cuCtxGetCurrent)(&primary));
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    for (size_t i = 0; i < 2 * sizeof makers / sizeof makers[0]; i++) {
        CHECK(DRIVER(cuCtxSetCurrent)(primary));
        CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
        CHECK(make_linear(total / MIB * 5 / 8 * MIB));
        CHECK(DRIVER(cuCtxSetCurrent)(i % 2 ? own : primary));
        CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
        printf(" %s %d", free_bytes > total / 4 * 3 ? "free" : "taken", makers[i / 2](total / MIB * 5 / 8 * MIB));
    }
    CHECK(DRIVER(cuCtxSetCurrent)(own));
    take(2);
    printf("\n");
}

/* ---- resets ---- */

/* Each time more than half of the device, of which nothing is left behind the reset. */
static void fill_between_resets(void)
{
    size_t free_bytes, total, least;
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    least = free_bytes;
    for (int i = 0; i < 4; i++) {
        take(total / MIB * 5 / 8);
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        enter_primary();
        CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
        least = free_bytes < least ? free_bytes : least;
    }
    take(1);
    printf(", %s\n", least > total / 4 * 3 ? "and all was free" : "and much was not free");
}

static void enter(int device)
{
    CUcontext primary;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, device));
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
}

/* Resets of both devices end streams that the stacks made, and the driver gives their handles to the program's. */
static void make_streams_behind_resets(void)
{
    enum { STREAMS = 128 };
    CUstream streams[STREAMS];
    CUdeviceptr block;
    int failed = 0;
    for (int device = 0; device < 2; device++) {
        enter(device);
        CHECK(DRIVER(cuStreamCreate)(&streams[device], CU_STREAM_NON_BLOCKING));
        CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, streams[device]));
        CHECK(DRIVER(cuMemsetD8Async)(block, 1, MIB, streams[device]));
        CHECK(DRIVER(cuMemFreeAsync)(block, streams[device]));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        CHECK(DRIVER(cuMemFree)(block));
        CHECK(DRIVER(cuStreamSynchronize)(streams[device]));
    }
    for (int device = 1; device >= 0; device--) {
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(device));
        enter(device);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(DRIVER(cuStreamCreate)(&streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        if (DRIVER(cuMemAllocAsync)(&block, MIB, streams[i]) != CUDA_SUCCESS ||
            DRIVER(cuMemFreeAsync)(block, streams[i]) != CUDA_SUCCESS)
            failed++;
    }
    CHECK(DRIVER(cuCtxSynchronize)());
    printf("%d failed\n", failed);
}

/* On each device: 60 MiB, and after a reset twice 60. */
static void take_around_resets(void)
{
    CUcontext primary;
    int count;
    CHECK(DRIVER(cuDeviceGetCount)(&count));
    for (int i = 0; i < 2 * count; i++) {
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, i / 2));
        CHECK(DRIVER(cuCtxSetCurrent)(primary));
        take(60);
        if (i % 2)
            take(60);
        else
            CHECK(DRIVER(cuDevicePrimaryCtxReset)(i / 2));
    }
    printf("\n");
}

/* Of a budget of 100 MiB: what was live at a reset leaves room for as much again, also if it is freed late. */
static void free_what_resets_have_ended(void)
{
    CUdeviceptr dead = 0;
    for (int i = 0; i < 3; i++) {
        dead = take(60);
        take(30);
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        enter_primary();
    }
    const CUdeviceptr kept = take(60);
    if (dead != kept)
        CHECK(DRIVER(cuMemFree)(dead) != CUDA_ERROR_INVALID_VALUE);
    take(60);
    take(30);
    CHECK(DRIVER(cuMemFree)(kept));
    take(60);
    printf("\n");
}

/* More than there are addresses for, with those of each pool of its own. Few blocks are large, which a guard writes. */
static void reset_often(void)
{
    CUdeviceptr block;
    int failed = 0;
    for (int i = 0; i < 200; i++) {
        failed += DRIVER(cuMemAlloc)(&block, (i % 20 ? 1 : 60) * MIB) != CUDA_SUCCESS;
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        enter_primary();
    }
    printf("%d failed,", failed);
    take(60);
    take(60);
    printf("\n");
}

/* ---- order ---- */

enum { BYTES = 32 << 20 }; /* more than frees that wait may hold back */

static unsigned char *seen; /* of BYTES */

static void CUDA_CB pause_long(void *data)
{
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static CUcontext current_context(void)
{
    CUcontext context;
    CHECK(DRIVER(cuCtxGetCurrent)(&context));
    return context;
}

/* In the current context: the stream reads the block late, and the block is freed. */
static void read_late_and_free(CUdeviceptr block, CUstream stream, bool async)
{
    CHECK(DRIVER(cuLaunchHostFunc)(stream, pause_long, NULL));
    CHECK(DRIVER(cuMemcpyDtoHAsync)(seen, block, BYTES, stream));
    CHECK(async ? DRIVER(cuMemFreeAsync)(block, stream) : DRIVER(cuMemFree)(block));
}

/* In the first context: the memory is given out again, and written on a stream that waits for nothing. */
static void write_again_and_look(CUstream writer, CUcontext first, CUcontext other, bool async)
{
    CUdeviceptr block;
    size_t wrong = 0;
    CHECK(async ? DRIVER(cuMemAllocAsync)(&block, BYTES, writer) : DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8Async)(block, 2, BYTES, writer));
    CHECK(DRIVER(cuStreamSynchronize)(writer));
    CHECK(DRIVER(cuCtxSetCurrent)(other));
    CHECK(DRIVER(cuCtxSynchronize)()); /* the reader has read */
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    for (size_t i = 0; i < BYTES; i++)
        wrong += seen[i] != 1;
    printf(" %zu", wrong);
    CHECK(DRIVER(cuMemFree)(block));
}

static CUstream new_writer(void)
{
    CUstream writer;
    CHECK(DRIVER(cuMemAllocHost)((void **)&seen, BYTES));
    CHECK(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    return writer;
}

/* For each default stream and each free: wrong bytes. */
static void read_in_another_context(CUcontext first, CUcontext other, CUstream writer)
{
    static const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (size_t i = 0; i < 6; i++) {
        CUdeviceptr block;
        CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
        CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
        CHECK(DRIVER(cuCtxSynchronize)());
        CHECK(DRIVER(cuCtxSetCurrent)(other));
        read_late_and_free(block, streams[i / 2], i % 2);
        CHECK(DRIVER(cuCtxSetCurrent)(first));
        write_again_and_look(writer, first, other, i % 2);
    }
    printf("\n");
}

/* Of a context that is older than the stack, and of one that is younger. */
static void read_on_default_streams(void)
{
    CUcontext older, younger;
    CUdeviceptr block;
    const CUcontext first = current_context();
    CHECK(DRIVER(cuCtxCreate)(&older, 0, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const CUstream writer = new_writer();
    CHECK(DRIVER(cuCtxCreate)(&younger, 0, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    read_in_another_context(first, older, writer);
    read_in_another_context(first, younger, writer);
    CHECK(DRIVER(cuCtxDestroy)(older));
    CHECK(DRIVER(cuCtxCreate)(&older, 0, 0)); /* perhaps by the handle of the one that has ended */
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    read_in_another_context(first, older, writer);
    CHECK(DRIVER(cuMemFree)(block));
}

/* Numbers of the stack's blocks are above all of the driver's. */
static void say_source(const char *when)
{
    CUdeviceptr block;
    unsigned long long number;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuPointerGetAttribute)(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    printf("%s: %s\n", when, number >> 63 ? "the stack" : "the driver");
    CHECK(DRIVER(cuMemFree)(block));
}

/* The capture goes with the context of its stream, which is not the one that is current as it begins. */
static void end_a_context_in_a_capture(void)
{
    CUcontext own;
    CUstream stream;
    CUgraph graph;
    const CUcontext first = current_context();
    say_source("before");
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    say_source("in a capture");
    CHECK(DRIVER(cuCtxDestroy)(own));
    say_source("behind its context");
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    CHECK(DRIVER(cuStreamBeginCapture)(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    printf("the end of another context's: %d\n", DRIVER(cuStreamEndCapture)(CU_STREAM_PER_THREAD, &graph));
    say_source("in a capture still");
    CHECK(DRIVER(cuCtxDestroy)(own));
    say_source("behind its context");
}

/* What a default stream reads is freed, and its context ends. */
static void end_a_context_that_reads(void)
{
    CUcontext own;
    CUdeviceptr block;
    const CUcontext first = current_context();
    const CUstream writer = new_writer();
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    read_late_and_free(block, NULL, false);
    CHECK(DRIVER(cuCtxDestroy)(own));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    write_again_and_look(writer, first, first, false);
    printf("\n");
}

static void free_without_a_context(void)
{
    static const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    CUdeviceptr block;
    const CUcontext first = current_context();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuCtxSetCurrent)(NULL));
    for (size_t i = 0; i < 3; i++)
        printf(" %d", DRIVER(cuMemFreeAsync)(block, streams[i]));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    printf(" %d\n", DRIVER(cuMemFreeAsync)(block, NULL));
}

/* The other device has no access but by copies, which are made on its default stream, and so is the free. */
static void copy_without_access(void)
{
    CUcontext other;
    CUdeviceptr block;
    const CUcontext first = current_context();
    const CUstream writer = new_writer();
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&other, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(other));
    read_late_and_free(block, NULL, true);
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    write_again_and_look(writer, first, other, false);
    printf("\n");
}

/* The other device's default stream, and one that it makes. */
static void read_on_a_peer(void)
{
    CUcontext peer;
    CUdeviceptr block;
    CUstream older, younger;
    const CUcontext first = current_context();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    const CUstream writer = new_writer();
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&peer, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(peer));
    CHECK(DRIVER(cuStreamCreate)(&older, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuCtxEnablePeerAccess)(first, 0));
    CHECK(DRIVER(cuStreamCreate)(&younger, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    read_in_another_context(first, peer, writer);
    const CUstream streams[] = {older, younger};
    for (size_t i = 0; i < 2; i++) {
        CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
        CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
        CHECK(DRIVER(cuCtxSynchronize)());
        CHECK(DRIVER(cuCtxSetCurrent)(peer));
        read_late_and_free(block, streams[i], false);
        CHECK(DRIVER(cuCtxSetCurrent)(first));
        write_again_and_look(writer, first, peer, false);
    }
    printf("\n");
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(1));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES)); /* behind a barrier without the peer */
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    printf("went on\n");
}

/* ---- threads ---- */

static CUcontext shared_context;
static int repeats; /* 0: as many as usual */

static void *use_contexts(void *data)
{
    CUcontext own;
    CUdeviceptr block, other;
    CUstream stream;
    for (int i = 0; i < 20; i++) {
        CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
        CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(DRIVER(cuMemAlloc)(&other, MIB)); /* the driver's, charged */
        CHECK(DRIVER(cuCtxSetCurrent)(shared_context));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        CHECK(DRIVER(cuCtxSetCurrent)(own));
        CHECK(DRIVER(cuMemsetD8Async)(block, 1, MIB, NULL));
        CHECK(DRIVER(cuMemFree)(block));
        CHECK(i % 2 ? DRIVER(cuMemFree)(other) : 0);
        CHECK(DRIVER(cuCtxDestroy)(own));
    }
    return data;
}

static void use_contexts_on_threads(void)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    shared_context = current_context();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_contexts, NULL));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
    printf("went on\n");
}

static _Atomic bool all_forked;

static void *make_contexts(void *data)
{
    CUcontext own;
    while (!all_forked) {
        CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
        CHECK(DRIVER(cuCtxDestroy)(own));
    }
    return data;
}

static void call_in_a_child(CUcontext context)
{
    CUstream stream;
    alarm(30); /* instead of a wait for ever, however busy the machine is */
    const bool refused = DRIVER(cuCtxCreate)(&context, 0, 0) && DRIVER(cuCtxEnablePeerAccess)(context, 0) &&
                         DRIVER(cuStreamCreate)(&stream, 0) && DRIVER(cuStreamBeginCapture)(NULL, 0) &&
                         DRIVER(cuCtxDestroy)(context) && DRIVER(cuDevicePrimaryCtxReset)(0);
    _exit(refused ? 0 : 1);
}

/* A child has the locks that the threads hold. */
static void fork_beside_threads(void)
{
    enum { THREADS = 3, FORKS = 150 };
    pthread_t threads[THREADS];
    const CUcontext context = current_context();
    CUdeviceptr block;
    int status = 0;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, make_contexts, NULL));
    for (int i = 0; i < FORKS && !status; i++) {
        const pid_t child = fork();
        if (child == 0)
            call_in_a_child(context);
        CHECK(child < 0 || waitpid(child, &status, 0) != child);
    }
    all_forked = true;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
    printf("status %d\n", status);
}

static _Atomic bool all_asked;
static _Atomic CUdeviceptr asked_for;

static void *ask_for_a_block(void *data)
{
    CHECK(DRIVER(cuCtxSetCurrent)(shared_context));
    while (!all_asked) {
        CUdeviceptr start;
        const CUdeviceptr block = asked_for;
        if (!DRIVER(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block) && start != block)
            printf("a block begins at another address\n");
    }
    return data;
}

/* The answers may be those of before or behind a reset. */
static void reset_beside_questions(void)
{
    enum { THREADS = 2, RESETS = 300 };
    pthread_t threads[THREADS];
    CUdeviceptr block = 0;
    shared_context = current_context();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_for_a_block, NULL));
    for (int i = 0; i < (repeats ? repeats : RESETS); i++) {
        enter_primary();
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        asked_for = block;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    }
    all_asked = true;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
    printf("went on\n");
}

static _Atomic bool all_reset, all_refused;

static void *ask_for_memory(void *data)
{
    CHECK(DRIVER(cuCtxSetCurrent)(shared_context));
    while (!all_reset) {
        CUdeviceptr block;
        const CUresult result = DRIVER(cuMemAlloc)(&block, MIB);
        if (result == CUDA_SUCCESS)
            (void)DRIVER(cuMemFree)(block);
        all_refused |= result == CUDA_ERROR_NOT_PERMITTED;
    }
    return data;
}

/* A stack whose device is reset while it is built is built again. */
static void reset_beside_requests(void)
{
    enum { THREADS = 3, RESETS = 1500 };
    pthread_t threads[THREADS];
    CUdeviceptr block;
    shared_context = current_context();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_for_memory, NULL));
    for (int i = 0; i < (repeats ? repeats : RESETS); i++) {
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        enter_primary();
        if (i % 4 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    all_reset = true;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    printf("%s\n", all_refused ? "refused" : "went on");
}

static pthread_barrier_t all_there;

static void *ask_at_once(void *data)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuCtxSetCurrent)(shared_context));
    pthread_barrier_wait(&all_there);
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    return data;
}

static void begin_on_several_threads(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    shared_context = current_context();
    CHECK(pthread_barrier_init(&all_there, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_at_once, NULL));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
    printf("went on\n");
}

static _Atomic bool all_released;

/* Of a context that comes and goes: what was refused, or is gone, is no error. */
static void *take_and_free(void *data)
{
    const bool async = data != NULL;
    CHECK(DRIVER(cuCtxSetCurrent)(shared_context));
    while (!all_released) {
        CUdeviceptr blocks[2] = {0};
        for (int i = 0; i < 2; i++) {
            const CUresult result =
                async ? DRIVER(cuMemAllocAsync)(&blocks[i], MIB, NULL) : DRIVER(cuMemAlloc)(&blocks[i], MIB);
            const bool gone = result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT ||
                              result == CUDA_ERROR_INVALID_HANDLE;
            CHECK(gone ? CUDA_SUCCESS : result);
            if (gone)
                blocks[i] = 0;
        }
        for (int i = 0; i < 2; i++)
            if (blocks[i])
                (void)(async ? DRIVER(cuMemFreeAsync)(blocks[i], NULL) : DRIVER(cuMemFree)(blocks[i]));
    }
    return NULL;
}

/* The last reference goes again and again while other threads ask for memory; nothing of it is charged at the end. */
static void release_beside_requests(void)
{
    enum { THREADS = 3, RELEASES = 200 };
    pthread_t threads[THREADS];
    CUdeviceptr block;
    shared_context = current_context();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, take_and_free, i % 2 ? threads : NULL));
    for (int i = 0; i < (repeats ? repeats : RELEASES); i++) {
        (void)DRIVER(cuMemAlloc)(&block, MIB);
        CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
        enter_primary();
        if (i % 4 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    all_released = true;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    enter_primary();
    take(60);
    take(60);
    printf("\n");
}

/* ---- memory that is passed on ---- */

static _Atomic CUmemGenericAllocationHandle handed; /* for any thread to release; 0: none */
static _Atomic bool all_made;

static void release(CUmemGenericAllocationHandle handle)
{
    if (handle)
        CHECK(DRIVER(cuMemRelease)(handle));
}

static void make_and_hand_over(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CHECK(DRIVER(cuMemCreate)(&handle, 2 * MIB, &properties, 0));
    release(atomic_exchange(&handed, handle));
}

static void *make_now_and_then(void *count)
{
    CHECK(DRIVER(cuCtxSetCurrent)(shared_context));
    for (; !all_made; ++*(int *)count) {
        make_and_hand_over();
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NULL;
}

/* One thread makes nearly all of it, and each releases what others made. */
static void pass_on_from_threads(void)
{
    enum { THREADS = 2, CALLS = 20000, FIRST_CALLS = 2000 };
    const int calls = repeats ? repeats : CALLS;
    pthread_t threads[THREADS];
    int made[THREADS] = {0}, all = FIRST_CALLS + calls;
    shared_context = current_context();
    for (int i = 0; i < FIRST_CALLS; i++)
        make_and_hand_over();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, make_now_and_then, &made[i]));
    for (int i = 0; i < calls; i++)
        make_and_hand_over();
    all_made = true;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL));
        all += made[i];
    }
    release(handed);
    printf("%d\n", all);
}

static const named_way ways[] = {
    {"kept-memory", keep_memory_beside_primary_contexts},
    {"kept-handle", keep_a_handle_behind_resets},
    {"pooled-memory", end_contexts_of_pooled_memory},
    {"freed", take_what_the_primary_context_freed},
    {"resets", fill_between_resets},
    {"around-resets", take_around_resets},
    {"streams", make_streams_behind_resets},
    {"often", reset_often},
    {"freed-late", free_what_resets_have_ended},
    {"default-streams", read_on_default_streams},
    {"ended", end_a_context_that_reads},
    {"peer", read_on_a_peer},
    {"captured", end_a_context_in_a_capture},
    {"no-context", free_without_a_context},
    {"no-access", copy_without_access},
    {"threads", use_contexts_on_threads},
    {"questions", reset_beside_questions},
    {"begin", begin_on_several_threads},
    {"requests", reset_beside_requests},
    {"releases", release_beside_requests},
    {"forks", fork_beside_threads},
    {"passed", pass_on_from_threads},
};

int main(int count, char **arguments)
{
    repeats = count > 2 ? atoi(arguments[2]) : 0;
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
