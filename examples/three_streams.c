/* A pool that hands memory from stream to stream and loses a wait: a known bug of such pools, on one page.
 *
 * The pool keeps a list of free blocks for each stream, and an event recorded after the last work on them. A stream
 * whose list is empty takes over the list of another stream, and waits for its event. Here A has used both blocks, B
 * takes over A's list, and C takes over the rest of it from B. C waits for B's event, but that was recorded before B
 * waited for A, so it does not cover A's work. On a GPU, A is usually done by then, and the bug stays hidden.
 *
 * The fix is one line: a stream's event must cover what the stream has waited for. With --fixed the pool does so.
 *
 * The program uses CUDA's driver API alone; docs/testing-your-code.md shows how the simulated driver finds the bug. */
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C, STREAMS, BLOCKS = 2, BYTES = 1 << 16 };

static CUstream streams[STREAMS];
static bool fixed;

/* The pool. */
static struct list {
    CUdeviceptr blocks[BLOCKS];
    int count;
    CUevent done;
} lists[STREAMS];

static void check(CUresult result)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "the driver answers %s\n", name ? name : "an unknown error");
    exit(2);
}

static void give_back(int stream, CUdeviceptr block)
{
    lists[stream].blocks[lists[stream].count++] = block;
    check(cuEventRecord(lists[stream].done, streams[stream]));
}

static void take_over(int stream, int from)
{
    check(cuStreamWaitEvent(streams[stream], lists[from].done, 0));
    if (fixed)
        check(cuEventRecord(lists[stream].done, streams[stream]));
    while (lists[from].count > 0)
        lists[stream].blocks[lists[stream].count++] = lists[from].blocks[--lists[from].count];
}

static CUdeviceptr take(int stream)
{
    for (int from = 0; from < STREAMS && lists[stream].count == 0; from++)
        if (lists[from].count > 0)
            take_over(stream, from);
    if (lists[stream].count == 0)
        check(CUDA_ERROR_OUT_OF_MEMORY);
    return lists[stream].blocks[--lists[stream].count];
}

static void fill(int stream, CUdeviceptr block, char letter)
{
    check(cuMemsetD8Async(block, (unsigned char)letter, BYTES, streams[stream]));
}

/* Returns the block that C filled. */
static CUdeviceptr hand_over(void)
{
    CUdeviceptr x = take(A), y = take(A);
    fill(A, x, 'a');
    fill(A, y, 'a');
    give_back(A, x);
    give_back(A, y);
    CUdeviceptr of_b = take(B), of_c = take(C);
    fill(B, of_b, 'b');
    fill(C, of_c, 'c');
    return of_c;
}

/* Returns how many bytes are what C wrote, after C and A are done. */
static int count_letters(CUdeviceptr of_c)
{
    static char host[BYTES];
    int right = 0;
    check(cuStreamSynchronize(streams[C]));
    check(cuStreamSynchronize(streams[A]));
    check(cuMemcpyDtoH(host, of_c, BYTES));
    for (int i = 0; i < BYTES; i++)
        right += host[i] == 'c';
    return right;
}

int main(int count, char **arguments)
{
    CUcontext context;
    CUdeviceptr memory;
    unsigned long long id;
    fixed = count == 2 && strcmp(arguments[1], "--fixed") == 0;
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    check(cuMemAlloc(&memory, (size_t)BLOCKS * BYTES));
    for (int i = 0; i < STREAMS; i++) {
        check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        check(cuEventCreate(&lists[i].done, CU_EVENT_DISABLE_TIMING));
        check(cuStreamGetId(streams[i], &id));
        printf("%c is stream %llu\n", 'A' + i, id);
    }
    for (int i = 0; i < BLOCKS; i++)
        lists[A].blocks[lists[A].count++] = memory + (CUdeviceptr)i * BYTES;
    int right = count_letters(hand_over());
    printf("%d of %d bytes are what C wrote\n", right, BYTES);
    check(cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        check(cuEventDestroy(lists[i].done));
        check(cuStreamDestroy(streams[i]));
    }
    check(cuMemFree(memory));
    check(cuDevicePrimaryCtxRelease(0));
    return right == BYTES ? EXIT_SUCCESS : EXIT_FAILURE;
}
