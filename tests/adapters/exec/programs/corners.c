/* What few programs do, by name: `corners NAME`. Each was answered wrongly by a library in front of a driver. */
#define _GNU_SOURCE
#include "driver_calls.h"
#include "no_descriptors.h"
#include "ways.h"

#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static const char *argument = ""; /* behind the name */

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

/* A block is freed while a stream reads it that was made in another context, before all else. */
static void read_in_an_older_context(void)
{
    enum { BYTES = 32 << 20 }; /* more than frees that wait may hold back */
    CUcontext own, first;
    CUdeviceptr block;
    unsigned char *late;
    size_t wrong = 0;
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuCtxCreate)(&own, 0, 0));
    const CUstream reader = new_stream();
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    const CUstream writer = new_stream();
    CHECK(DRIVER(cuMemAllocHost)((void **)&late, BYTES));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8)(block, 1, BYTES));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuCtxSetCurrent)(own));
    CHECK(DRIVER(cuLaunchHostFunc)(reader, pause_long, NULL));
    CHECK(DRIVER(cuMemcpyDtoHAsync)(late, block, BYTES, reader));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8Async)(block, 2, BYTES, writer));
    CHECK(DRIVER(cuStreamSynchronize)(writer));
    CHECK(DRIVER(cuStreamSynchronize)(reader));
    for (size_t i = 0; i < BYTES; i++)
        wrong += late[i] != 1;
    printf("%zu wrong\n", wrong);
}

/* ---- memory that the driver gives ---- */

static CUresult make_physical(CUmemGenericAllocationHandle *handle, size_t bytes, int device)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return DRIVER(cuMemCreate)(handle, bytes, &properties, 0);
}

/* Most of the device is allocated and freed, and then asked for in another way. */
static void ask_the_driver_behind_a_free(void)
{
    CUdeviceptr block;
    CUmemGenericAllocationHandle handle;
    size_t free_bytes, total;
    const CUstream stream = argument[0] ? new_stream() : NULL;
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    CHECK(DRIVER(cuMemAlloc)(&block, free_bytes / 4 * 3));
    CHECK(DRIVER(cuMemsetD8Async)(block, 1, MIB, stream));
    CHECK(DRIVER(cuMemFree)(block));
    printf("%d\n", make_physical(&handle, free_bytes / 4 * 3 / (2 * MIB) * (2 * MIB), 0));
}

static void ask_for_memory_of_no_device(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;
    printf("%d", make_physical(&handle, 2 * MIB, 9));
    printf(" %d\n", make_physical(&handle, 2 * MIB, -1));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
}

/* ---- contexts ---- */

/* Each release gives what the driver does, also one too many. */
static void release_too_often(void)
{
    CUcontext context;
    CUdeviceptr block;
    for (int i = 0; i < 2; i++) {
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        printf("releases: %d", DRIVER(cuDevicePrimaryCtxRelease)(0));
        printf(" %d\n", DRIVER(cuDevicePrimaryCtxRelease)(0));
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(context));
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        printf("after a reset: %d", DRIVER(cuDevicePrimaryCtxRelease)(0));
        printf(" %d\n", DRIVER(cuDevicePrimaryCtxRelease)(0));
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(context));
    }
}

/* ---- whose memory it is ---- */

static size_t free_mebibytes(CUcontext context)
{
    size_t free_bytes, total;
    CUcontext before;
    CHECK(DRIVER(cuCtxGetCurrent)(&before));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    CHECK(DRIVER(cuCtxSetCurrent)(before));
    return free_bytes / MIB;
}

static void say_device(const char *what, CUdeviceptr block)
{
    int device = -1;
    CHECK(DRIVER(cuPointerGetAttribute)(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    printf("%s: device %d\n", what, device);
}

/* A device's stream is named while another one's context is current. */
static void ask_on_another_device(void)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUcontext here, there;
    CUmemoryPool pool;
    CUdeviceptr block, other;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&here, 0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&there, 1));
    const CUstream own = new_stream();
    CHECK(DRIVER(cuCtxSetCurrent)(there));
    const CUstream stream = new_stream();
    CHECK(DRIVER(cuMemPoolCreate)(&pool, &properties));
    CHECK(DRIVER(cuCtxSetCurrent)(here));
    const size_t free_here = free_mebibytes(here), free_there = free_mebibytes(there);
    CHECK(DRIVER(cuMemAllocAsync)(&block, 32 * MIB, stream));
    say_device("of a stream", block);
    CHECK(DRIVER(cuMemAllocFromPoolAsync)(&other, 32 * MIB, pool, own));
    say_device("of a pool", other);
    printf("less free here: %zu, there: %zu\n", free_here - free_mebibytes(here), free_there - free_mebibytes(there));
    CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuMemFreeAsync)(other, own));
    CHECK(DRIVER(cuStreamSynchronize)(stream));
    CHECK(DRIVER(cuStreamSynchronize)(own));
}

/* The stream says which device it is. */
static void ask_on_a_stream_without_a_context(void)
{
    CUdeviceptr block;
    CUmemoryPool standard;
    const CUstream stream = new_stream();
    CHECK(DRIVER(cuDeviceGetDefaultMemPool)(&standard, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(NULL));
    CUresult result = DRIVER(cuMemAllocAsync)(&block, 40 * MIB, stream);
    printf("in order: %d", (int)result);
    if (result == CUDA_SUCCESS)
        CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    result = DRIVER(cuMemAllocFromPoolAsync)(&block, 40 * MIB, standard, stream);
    printf(", of the default pool: %d\n", (int)result);
    if (result == CUDA_SUCCESS)
        CHECK(DRIVER(cuMemFreeAsync)(block, stream));
    CHECK(DRIVER(cuStreamSynchronize)(stream));
}

/* The device's own pool is the default one again. */
static void destroy_the_current_pool(void)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool, standard;
    CUdeviceptr block;
    cuuint64_t used = 0;
    CHECK(DRIVER(cuMemPoolCreate)(&pool, &properties));
    CHECK(DRIVER(cuDeviceSetMemPool)(0, pool));
    CHECK(DRIVER(cuMemPoolDestroy)(pool));
    CHECK(DRIVER(cuDeviceGetDefaultMemPool)(&standard, 0));
    CHECK(DRIVER(cuMemAllocAsync)(&block, 4 * MIB, NULL));
    CHECK(DRIVER(cuMemPoolGetAttribute)(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    printf("%llu MiB of the default pool\n", (unsigned long long)used / MIB);
    CHECK(DRIVER(cuMemFreeAsync)(block, NULL));
}

/* ---- addresses ---- */

static unsigned long long buffer_of(CUdeviceptr block)
{
    unsigned long long buffer = 0;
    CHECK(DRIVER(cuPointerGetAttribute)(&buffer, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    return buffer;
}

/* Of live blocks, of one in the place of a freed one, and of one behind a reset. */
static void compare_buffers(void)
{
    enum { COUNT = 6 };
    CUdeviceptr blocks[COUNT];
    unsigned long long buffers[COUNT];
    CUcontext context;
    size_t same = 0;
    for (int i = 0; i < COUNT; i++) {
        if (i == 3)
            CHECK(DRIVER(cuMemFree)(blocks[2]));
        if (i == 4) {
            CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
            CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
            CHECK(DRIVER(cuCtxSetCurrent)(context));
        }
        CHECK(DRIVER(cuMemAlloc)(&blocks[i], MIB));
        buffers[i] = buffer_of(blocks[i]);
        printf("inside: %s\n", buffer_of(blocks[i] + MIB / 2) == buffers[i] ? "the same" : "another");
        for (int j = 0; j < i; j++)
            same += buffers[i] == buffers[j];
    }
    printf("%zu are the same\n", same);
}

static void ask_for_address(const char *what, CUdeviceptr address)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUmemorytype type = 0, again = 7;
    CUdeviceptr start = 0;
    size_t bytes = 0, range = 7;
    void *values[] = {&again, &range};
    printf("%s: range %d", what, DRIVER(cuMemGetAddressRange)(&start, &bytes, address));
    printf(" of %zu, type %d", bytes, DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    printf(" is %d, both %d", (int)type, DRIVER(cuPointerGetAttributes)(2, attributes, values, address));
    printf(" are %d and %zu\n", (int)again, range);
}

/* Of a block with more bytes than were asked for. */
static void ask_for_the_end_of_a_block(void)
{
    CUdeviceptr block, start = 0, ends[3];
    size_t bytes = 0;
    CHECK(DRIVER(cuMemAlloc)(&block, 1000));
    CHECK(DRIVER(cuMemAllocAsync)(&ends[2], 1000, NULL));
    ends[0] = block + 999;
    ends[1] = block + 1000;
    ends[2] += 1000;
    for (int i = 0; i < 3; i++) {
        printf("%d", DRIVER(cuMemGetAddressRange)(&start, &bytes, ends[i]));
        printf(" %d, %d of %zu\n",
               DRIVER(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ends[i]), start == block,
               bytes);
    }
}

/* Also of a free that waits for a barrier. */
static void ask_for_freed_addresses(void)
{
    CUdeviceptr block, kept;
    CHECK(DRIVER(cuMemAlloc)(&kept, MIB));
    CHECK(DRIVER(cuMemAlloc)(&block, 3 * MIB));
    ask_for_address("live", block + 1);
    CHECK(DRIVER(cuMemFree)(block));
    ask_for_address("freed", block);
    (void)new_stream();
    CHECK(DRIVER(cuMemAlloc)(&block, 3 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    ask_for_address("freed", block + 1);
    ask_for_address("live", kept);
}

/* One address again and again, whatever becomes of its memory. */
static void ask_for_one_address(void)
{
    CUdeviceptr first, second, inside;
    CUcontext context;
    CHECK(DRIVER(cuMemAlloc)(&first, 3 * MIB));
    inside = first + MIB;
    ask_for_address("in the first block", inside);
    ask_for_address("again", inside);
    CHECK(DRIVER(cuMemFree)(first));
    ask_for_address("freed", inside);
    CHECK(DRIVER(cuMemAlloc)(&second, 2 * MIB)); /* over the address, most likely */
    ask_for_address("in the second block", second + MIB);
    CHECK(DRIVER(cuMemFree)(second));
    (void)new_stream();
    CHECK(DRIVER(cuMemAlloc)(&second, MIB));
    ask_for_address("in the third block", second);
    CHECK(DRIVER(cuMemFree)(second));
    ask_for_address("its free waits", second);
    CHECK(DRIVER(cuMemAlloc)(&first, 3 * MIB));
    ask_for_address("before a reset", first);
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    ask_for_address("behind it", first);
    CHECK(DRIVER(cuMemAlloc)(&second, 5 * MIB));
    ask_for_address("new", second);
}

/* ---- amounts ---- */

static void ask_for_one_amount(void)
{
    size_t free_bytes = 0, total = 0;
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, 32 * MIB));
    printf("total: %d", DRIVER(cuMemGetInfo)(NULL, &total));
    printf(" %zu MiB, free: %d", total / MIB, DRIVER(cuMemGetInfo)(&free_bytes, NULL));
    printf(" %zu MiB, none: %d\n", free_bytes / MIB, DRIVER(cuMemGetInfo)(NULL, NULL));
}

/* What waits is freed for a request that would be refused, though it is too little to be freed before. */
static void ask_while_a_free_waits(void)
{
    CUdeviceptr block, kept;
    size_t free_bytes, total;
    (void)new_stream();
    CHECK(DRIVER(cuMemAlloc)(&kept, 44 * MIB));
    CHECK(DRIVER(cuMemAlloc)(&block, 16 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    printf("linear: %d", DRIVER(cuMemAlloc)(&block, 12 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    printf(", passed on: %d", DRIVER(cuMemAllocManaged)(&block, 12 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(DRIVER(cuMemAlloc)(&block, 4 * MIB));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    printf(", %zu of %zu MiB free\n", free_bytes / MIB, total / MIB);
}

/* ---- captures ---- */

static void *end_as_another_thread(void *stream)
{
    CUgraph made;
    printf("by another thread: %d", DRIVER(cuStreamEndCapture)(stream, &made));
    return NULL;
}

/* The end of one leaves the other as it is. */
static void end_one_of_two(void)
{
    CUgraph made;
    CUdeviceptr block;
    const CUstream first = new_stream(), second = new_stream();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamBeginCapture)(first, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(DRIVER(cuStreamBeginCapture)(second, CU_STREAM_CAPTURE_MODE_RELAXED));
    printf("the second one's end: %d", DRIVER(cuStreamEndCapture)(second, &made));
    CHECK(DRIVER(cuMemFree)(block));
    printf(", the first one's: %d\n", DRIVER(cuStreamEndCapture)(first, &made));
}

/* One that does not begin, and one that does not end. */
static void fail_to_begin_and_to_end(void)
{
    pthread_t thread;
    CUgraph made;
    CUdeviceptr block;
    const CUstream stream = new_stream();
    printf("of the default stream: %d", DRIVER(cuStreamBeginCapture)(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    printf(", then %d\n", DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(pthread_create(&thread, NULL, end_as_another_thread, stream));
    CHECK(pthread_join(thread, NULL));
    printf(", memory in it: %d", DRIVER(cuMemAlloc)(&block, MIB));
    printf(", its end: %d\n", DRIVER(cuStreamEndCapture)(stream, &made));
}

/* ---- loading ---- */

int cuSomething(void); /* of a library that is no driver */

/* Calls the function while the loader loads a library; what gets stuck ends by a signal. */
static void call_while_loading(void (*call)(void))
{
    char text[32];
    void *address;
    memcpy(&address, &call, sizeof address);
    snprintf(text, sizeof text, "%p", address);
    setenv("AT_LOAD", text, 1);
    if (!dlopen(argument, RTLD_NOW | RTLD_LOCAL))
        printf("%s\n", dlerror());
}

static int look(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)object;
    (void)size;
    (void)data;
    return 0;
}

/* The loader waits for a lock that a report may hold, and holds one that it may wait for. */
static void ask_for_a_report(void)
{
    raise(SIGUSR1);
    nanosleep(&(struct timespec){.tv_nsec = 600000000}, NULL);
    dl_iterate_phdr(look, NULL);
}

static void report_while_loading(void)
{
    CUdeviceptr block;
    CHECK(cuSomething() - 1);
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    call_while_loading(ask_for_a_report);
    printf("loaded\n");
}

static CUgraphExec graph;
static CUcontext primary;

static void make_graph(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
                                         .bytesize = 64 * MIB};
    CUgraph made;
    CUgraphNode taken, freed;
    CHECK(DRIVER(cuGraphCreate)(&made, 0));
    CHECK(DRIVER(cuGraphAddMemAllocNode)(&taken, made, NULL, 0, &params));
    CHECK(DRIVER(cuGraphAddMemFreeNode)(&freed, made, &taken, 1, params.dptr));
    CHECK(DRIVER(cuGraphInstantiate)(&graph, made, 0));
}

static void *launch_and_trim(void *data)
{
    (void)data;
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
    CHECK(DRIVER(cuGraphLaunch)(graph, NULL));
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuDeviceGraphMemTrim)(0));
    return NULL;
}

static pthread_t launcher;

static void launch_beside_another_thread(void)
{
    CHECK(pthread_create(&launcher, NULL, launch_and_trim, NULL));
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* now it waits for the loader */
    launch_and_trim(NULL);
}

/* Above the budget: which library asked is looked up. */
static void launch_while_loading(void)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
    CHECK(DRIVER(cuMemAlloc)(&block, 4096));
    make_graph();
    call_while_loading(launch_beside_another_thread);
    CHECK(pthread_join(launcher, NULL));
    printf("launched\n");
}

/* ---- descriptors ---- */

/* The thread that answers strata top. */
static void wait_without_descriptors(void)
{
    char name[32];
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    snprintf(name, sizeof name, "strata-exec-%d", (int)getpid());
    const int spent = spent_without_descriptors(name, SOCK_STREAM);
    printf("%s\n", spent >= 0 && spent < 200 ? "idle" : "busy");
}

/* ---- forks ---- */

/* As a daemon that opens nothing in their place. Later messages of the program go to what has these numbers. */
static void close_standard_descriptors(void)
{
    CUdeviceptr block;
    const int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 100);
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
        close(i);
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemFree)(block));
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
        dprintf(output, "%d", fcntl(i, F_GETFD));
    dprintf(output, "\n");
}

static _Atomic bool enough;

static void *use_host_memory(void *data)
{
    void *memory;
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
    while (!enough) {
        CHECK(DRIVER(cuMemHostAlloc)(&memory, 4096, 0));
        CHECK(DRIVER(cuMemFreeHost)(memory));
    }
    return data;
}

static void *use_streams(void *data)
{
    CUgraph made;
    CUdeviceptr block;
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
    while (!enough) {
        const CUstream stream = new_stream();
        CHECK(DRIVER(cuMemAlloc)(&block, 4096));
        CHECK(DRIVER(cuMemFree)(block));
        CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK(DRIVER(cuStreamEndCapture)(stream, &made));
        CHECK(DRIVER(cuGraphDestroy)(made));
        CHECK(DRIVER(cuStreamDestroy)(stream));
    }
    return data;
}

/* As destructors of a forked worker do. */
static void call_as_child(CUdeviceptr block, CUstream stream, bool says)
{
    CUgraph made;
    CUmemGenericAllocationHandle handle = 1;
    const CUresult results[] = {
        DRIVER(cuMemFree)(block),
        DRIVER(cuMemFreeAsync)(block, stream),
        DRIVER(cuMemFreeHost)(seen),
        DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
        DRIVER(cuStreamEndCapture)(stream, &made),
        DRIVER(cuStreamDestroy)(stream),
        DRIVER(cuMemRetainAllocationHandle)(&handle, seen),
        DRIVER(cuMemRelease)(handle),
        DRIVER(cuMemUnmap)(block, 4096),
        DRIVER(cuCtxDestroy)(primary),
        DRIVER(cuDevicePrimaryCtxRelease)(0),
        DRIVER(cuDevicePrimaryCtxReset)(0),
    };
    for (size_t i = 0; says && i < sizeof results / sizeof results[0]; i++)
        printf(" %d", results[i]);
    fflush(stdout);
}

static bool child_ends(CUdeviceptr block, CUstream stream, bool says)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        alarm(30); /* instead of a wait for ever, however busy the machine is */
        call_as_child(block, stream, says);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) - child);
    return status == 0;
}

static void *outlive_main(void *data)
{
    CUdeviceptr block;
    (void)data;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(primary));
    CHECK(DRIVER(cuMemAlloc)(&block, 4096));
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    puts("the last thread");
    return NULL;
}

/* The C library exits when the last thread ends. */
static void end_main_first(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, outlive_main, NULL));
    pthread_exit(NULL);
}

static void fork_beside_threads(void)
{
    pthread_t threads[2];
    CUdeviceptr block;
    const int forks = (int)strtol(argument, NULL, 10);
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
    CHECK(DRIVER(cuMemAlloc)(&block, 4096));
    const CUstream stream = new_stream();
    CHECK(pthread_create(&threads[0], NULL, use_host_memory, NULL));
    CHECK(pthread_create(&threads[1], NULL, use_streams, NULL));
    for (int i = 0; i < forks; i++)
        if (!child_ends(block, stream, i == 0)) {
            printf("\nchild %d is stuck\n", i);
            exit(1);
        }
    enough = true;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL));
    printf("\nall children ended\n");
}

/* ---- refusals ---- */

static pthread_barrier_t both;

/* Both threads hold 40 MiB and ask for 40 more. Prints what the one is told that is refused. */
static void *hold_and_ask(void *context)
{
    CUdeviceptr held, more;
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuMemAlloc)(&held, 40 * MIB));
    pthread_barrier_wait(&both);
    const CUresult result = DRIVER(cuMemAlloc)(&more, 40 * MIB);
    if (result != CUDA_SUCCESS)
        printf("refused: %d\n", (int)result);
    else
        CHECK(DRIVER(cuMemFree)(more));
    CHECK(DRIVER(cuMemFree)(held));
    return NULL;
}

static void wait_for_one_another(void)
{
    CUcontext context;
    pthread_t threads[2];
    CHECK(DRIVER(cuCtxGetCurrent)(&context));
    CHECK(pthread_barrier_init(&both, NULL, 2));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, hold_and_ask, context));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL));
}

static void *ask_and_end(void *context)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    pthread_cancel(pthread_self()); /* it ends in the first call that a thread can be ended in */
    (void)DRIVER(cuMemAlloc)(&block, MIB);
    pthread_testcancel();
    return NULL;
}

/* A thread that ends in the calls of `work`, which gets the context. */
static void end_a_thread(void *(*work)(void *context))
{
    CUcontext context;
    pthread_t thread;
    CHECK(DRIVER(cuCtxGetCurrent)(&context));
    CHECK(pthread_create(&thread, NULL, work, context));
    CHECK(pthread_join(thread, NULL));
    alarm(30); /* instead of a wait for ever for a lock of its */
}

/* The first request of all, which meets what keeps the stack from being built. */
static void end_in_the_first_request(void)
{
    CUdeviceptr block;
    end_a_thread(ask_and_end);
    printf("then: %d\n", DRIVER(cuMemAlloc)(&block, MIB));
}

static void *reset_and_end(void *context)
{
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    pthread_cancel(pthread_self());
    (void)DRIVER(cuDevicePrimaryCtxReset)(0);
    pthread_testcancel();
    return NULL;
}

/* The memory of the stack is given back inside the call. */
static void end_in_a_reset(void)
{
    CUcontext context;
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    end_a_thread(reset_and_end);
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    printf("then: %d", DRIVER(cuMemAlloc)(&block, MIB));
    printf(", another reset: %d\n", DRIVER(cuDevicePrimaryCtxReset)(0));
}

/* Files grow no further, as on a full disk. */
static void fill_the_log(void)
{
    CUdeviceptr block, first;
    CHECK(DRIVER(cuMemAlloc)(&first, MIB));
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 4096, .rlim_max = RLIM_INFINITY}));
    for (int i = 0; i < 50000; i++) {
        CHECK(DRIVER(cuMemAlloc)(&block, 1000));
        CHECK(DRIVER(cuMemFree)(block));
        if (i % 1000 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    CHECK(DRIVER(cuMemFree)(first));
    puts("as without");
}

/* The first block begins where the memory of the stack's owner does. */
static void free_twice(void)
{
    CUdeviceptr first, second;
    CHECK(DRIVER(cuMemAlloc)(&first, 4096));
    CHECK(DRIVER(cuMemAlloc)(&second, 4096));
    CHECK(DRIVER(cuMemFree)(first));
    printf("again: %d", DRIVER(cuMemFree)(first));
    printf(", in stream order: %d", DRIVER(cuMemFreeAsync)(first, NULL));
    printf(", the other one: %d\n", DRIVER(cuMemsetD8Async)(second, 1, 4096, NULL));
}

/* ---- the end ---- */

static CUdeviceptr held_to_the_end;

static void free_at_the_end(void)
{
    const CUresult freed = DRIVER(cuMemFree)(held_to_the_end), twice = DRIVER(cuMemFree)(held_to_the_end);
    printf("free: %d, again: %d\n", (int)freed, (int)twice);
}

/* The exit handler is registered after cuInit, and so runs before the driver's; the first request comes later. */
static void free_in_an_exit_handler(void)
{
    CHECK(atexit(free_at_the_end));
    CHECK(DRIVER(cuMemAlloc)(&held_to_the_end, MIB));
}

static bool asks_at_the_end; /* a destructor of the program runs behind the end of the driver */

static void ask_at_the_end(void)
{
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    asks_at_the_end = true;
}

__attribute__((destructor)) static void ask_without_a_driver(void)
{
    CUdeviceptr block;
    if (asks_at_the_end)
        printf("at the end: %d\n", DRIVER(cuMemAlloc)(&block, MIB));
}

static const named_way corners[] = {
    {"fresh", write_beside_the_legacy_stream},
    {"older-context", read_in_an_older_context},
    {"room", ask_the_driver_behind_a_free},
    {"no-device", ask_for_memory_of_no_device},
    {"releases", release_too_often},
    {"devices", ask_on_another_device},
    {"stream-alone", ask_on_a_stream_without_a_context},
    {"pool-destroyed", destroy_the_current_pool},
    {"buffers", compare_buffers},
    {"end", ask_for_the_end_of_a_block},
    {"freed", ask_for_freed_addresses},
    {"one-address", ask_for_one_address},
    {"amounts", ask_for_one_amount},
    {"waiting", ask_while_a_free_waits},
    {"captures", fail_to_begin_and_to_end},
    {"two-captures", end_one_of_two},
    {"report-loading", report_while_loading},
    {"launch-loading", launch_while_loading},
    {"descriptors", wait_without_descriptors},
    {"standard", close_standard_descriptors},
    {"fork", fork_beside_threads},
    {"main-first", end_main_first},
    {"deadlock", wait_for_one_another},
    {"cancelled", end_in_the_first_request},
    {"cancelled-reset", end_in_a_reset},
    {"full-log", fill_the_log},
    {"freed-twice", free_twice},
    {"exit-handler", free_in_an_exit_handler},
    {"at-the-end", ask_at_the_end},
};

int main(int count, char **arguments)
{
    argument = count > 2 ? arguments[2] : "";
    begin();
    return run_way(corners, sizeof corners / sizeof corners[0], count, arguments);
}
