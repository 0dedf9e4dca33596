/* The ends of contexts by references, by their own functions, and beside other threads, by name: `ends NAME`. */
#include "ends.h"

/* ---- references to the primary context ---- */

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

CUresult CUDAAPI cuNewContextsEnded(int *count);

/* Until that thread's context has ended; the call goes on. */
static pthread_t begin_to_destroy(CUcontext context)
{
    WIDER(cuNewContextsEnded, "cuNewContextsEnded", 13000);
    pthread_t thread;
    int count = 0;
    CHECK(pthread_create(&thread, NULL, destroy, context));
    while (!count) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        CHECK(cuNewContextsEnded_found(&count));
    }
    return thread;
}

static void end_beside_another_thread(void)
{
    make_barrier();
    const CUcontext context = new_context_with_stream();
    make_barrier();
    const pthread_t thread = begin_to_destroy(context);
    make_barrier();
    CHECK(pthread_join(thread, NULL));
    make_barrier();
    printf("went on\n");
}

/* By the handle of one that another thread is about to forget. Its memory is counted. */
static void make_beside_another_thread(void)
{
    CUcontext context, again;
    CUdeviceptr block;
    CHECK(DRIVER(cuCtxCreate)(&context, 0, 0));
    const pthread_t thread = begin_to_destroy(context);
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

/* ---- streams ---- */

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

CUresult CUDAAPI cuNewEndlessWork(void);

/* The thread that has waited for the work is left in the driver. */
static void end_main_behind_endless_work(void)
{
    WIDER(cuNewEndlessWork, "cuNewEndlessWork", 13000);
    CUdeviceptr block;
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(cuNewEndlessWork_found());
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    puts("the main thread ends");
    pthread_exit(NULL);
}

static const named_way ways[] = {
    {"references", count_references},
    {"begun-anew", release_beside_a_begin},
    {"destroy", end_beside_another_thread},
    {"made-again", make_beside_another_thread},
    {"detach", detach},
    {"detach-once", detach_once},
    {"peer-stream", end_a_peers_stream},
    {"main-first", end_main_behind_endless_work},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
