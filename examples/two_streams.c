/* Two streams share a buffer: one writes it, the other reads it, repeatedly. The program uses no events. Each launch
 * names the blocks that it touches; the launch recorder makes the reader wait for the writer, and the next write wait
 * for the reader. */
#include "cuda_calls.h"

#include <stdlib.h>

enum { BYTES = 1 << 16, ROUNDS = 8 };

static cuda_calls cu;

/* Submits one launch to `stream` that touches `buffer`. */
static bool launch(strata_runtime *runtime, CUstream stream, const strata_block *buffer, strata_access access,
                   bool (*submit)(CUstream stream, const strata_block *buffer, void *data), void *data)
{
    strata_launch record;
    if (strata_launch_begin(&record, runtime, stream, STRATA_LAUNCH_STRICT) != STRATA_SUCCESS)
        return false;
    bool done = strata_launch_use(&record, buffer, access) == STRATA_SUCCESS &&
                strata_launch_preflight(&record) == STRATA_SUCCESS;
    if (done) {
        done = submit(stream, buffer, data);
        strata_status status = done ? strata_launch_commit(&record) : strata_launch_cancel(&record);
        done = done && status == STRATA_SUCCESS;
    }
    return strata_launch_end(&record) == STRATA_SUCCESS && done;
}

static bool fill(CUstream stream, const strata_block *buffer, void *value)
{
    return cu.MemsetD8Async(buffer->address, *(unsigned char *)value, buffer->requested, stream) == CUDA_SUCCESS;
}

static bool fetch(CUstream stream, const strata_block *buffer, void *host)
{
    return cu.MemcpyDtoHAsync(host, buffer->address, buffer->requested, stream) == CUDA_SUCCESS;
}

static bool hand_over(strata_runtime *runtime, CUstream writer, CUstream reader, unsigned char *host)
{
    strata_block buffer;
    if (strata_runtime_allocate(runtime, BYTES, writer, &buffer) != STRATA_SUCCESS)
        return false;
    bool done = true;
    for (unsigned char round = 0; round < ROUNDS && done; round++)
        done = launch(runtime, writer, &buffer, STRATA_ACCESS_WRITE, fill, &round) &&
               launch(runtime, reader, &buffer, STRATA_ACCESS_READ, fetch, host + (size_t)round * BYTES);
    /* The free is ordered after the reader too, although the buffer was allocated on the writer's stream. */
    done &= strata_runtime_deallocate(runtime, &buffer) == STRATA_SUCCESS;
    return strata_runtime_stream_synchronize(runtime, reader) == STRATA_SUCCESS && done;
}

static bool each_round_was_read(const unsigned char *host)
{
    for (size_t i = 0; i < (size_t)ROUNDS * BYTES; i++)
        if (host[i] != i / BYTES)
            return false;
    return true;
}

static int run(strata_runtime *runtime, unsigned char *host)
{
    CUstream writer, reader;
    if (strata_runtime_stream_acquire(runtime, &writer) != STRATA_SUCCESS ||
        strata_runtime_stream_acquire(runtime, &reader) != STRATA_SUCCESS)
        return EXIT_FAILURE;
    bool right = hand_over(runtime, writer, reader, host) && each_round_was_read(host);
    strata_runtime_stream_release(runtime, reader);
    strata_runtime_stream_release(runtime, writer);
    puts(right ? "every round was read as it was written" : "a round was read too early or too late");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(void)
{
    strata_runtime *runtime;
    unsigned char *host = malloc((size_t)ROUNDS * BYTES);
    if (!host || !cuda_open(&cu))
        return EXIT_FAILURE;
    int status = strata_runtime_get(0, &runtime) == STRATA_SUCCESS ? run(runtime, host) : EXIT_FAILURE;
    if (strata_last_error()->status != STRATA_SUCCESS)
        fprintf(stderr, "%s\n", strata_last_error()->message);
    free(host);
    return status;
}
