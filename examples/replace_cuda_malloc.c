/* A function that allocates device memory, before and after.
 *
 * cuMemAlloc and cuMemFree (cudaMalloc and cudaFree) may wait for the whole device. Strata's memory is stream-ordered:
 * work may be submitted to its stream at once, and the free happens in the order of that stream. */
#include "cuda_calls.h"

#include <stdlib.h>

enum { BYTES = 1 << 20 };

static cuda_calls cu;

/* The work: fills the buffer and copies it to the host. */
static bool fill_and_fetch(CUdeviceptr buffer, unsigned char value, unsigned char *host, CUstream stream)
{
    return cu.MemsetD8Async(buffer, value, BYTES, stream) == CUDA_SUCCESS &&
           cu.MemcpyDtoHAsync(host, buffer, BYTES, stream) == CUDA_SUCCESS;
}

/* ---- before ---- */

static bool run_before(unsigned char *host, CUstream stream)
{
    CUdeviceptr buffer;
    if (cu.MemAlloc(&buffer, BYTES) != CUDA_SUCCESS)
        return false;
    bool done = fill_and_fetch(buffer, 1, host, stream) && cu.StreamSynchronize(stream) == CUDA_SUCCESS;
    cu.MemFree(buffer); /* only after the stream has finished with it */
    return done;
}

/* ---- after ---- */

static bool run_after(strata_runtime *runtime, unsigned char *host, CUstream stream)
{
    strata_block buffer;
    if (strata_runtime_allocate(runtime, BYTES, stream, &buffer) != STRATA_SUCCESS)
        return false;
    bool done = fill_and_fetch(buffer.address, 2, host, stream);
    done &=
        strata_runtime_deallocate(runtime, &buffer) == STRATA_SUCCESS; /* at once: the free is ordered after the work */
    return done && strata_runtime_stream_synchronize(runtime, stream) == STRATA_SUCCESS;
}

/* ---- both ---- */

static bool holds(const unsigned char *host, unsigned char value)
{
    for (size_t i = 0; i < BYTES; i++)
        if (host[i] != value)
            return false;
    return true;
}

static int run(strata_runtime *runtime, unsigned char *host)
{
    CUstream stream;
    if (strata_runtime_stream_acquire(runtime, &stream) != STRATA_SUCCESS)
        return EXIT_FAILURE;
    bool right = run_before(host, stream) && holds(host, 1) && run_after(runtime, host, stream) && holds(host, 2);
    strata_runtime_stream_release(runtime, stream);
    puts(right ? "the same bytes, before and after" : "the bytes are not those that were written");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(void)
{
    strata_runtime *runtime;
    unsigned char *host = malloc(BYTES);
    if (!host || !cuda_open(&cu))
        return EXIT_FAILURE;
    int status = strata_runtime_get(0, &runtime) == STRATA_SUCCESS ? run(runtime, host) : EXIT_FAILURE;
    if (strata_last_error()->status != STRATA_SUCCESS)
        fprintf(stderr, "%s\n", strata_last_error()->message);
    free(host);
    return status;
}
