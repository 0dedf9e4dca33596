/* A bug that the driver does not report: a fill that is four bytes too long. The guard layer reports the block, the
 * damaged bytes, and where the block was allocated; the program continues. */
#include "cuda_calls.h"

#include <stdlib.h>

static void print(const char *text, size_t length, void *data)
{
    (void)data;
    fwrite(text, 1, length, stdout);
}

static void report(const strata_guard_finding *finding, void *data)
{
    int *count = data;
    ++*count;
    strata_guard_finding_print(finding, print, NULL);
}

static bool make_runtime(int *found, strata_runtime **out, strata_resource **guard)
{
    strata_guard_options options = {.on_finding_call = report, .on_finding_data = found};
    strata_resource *layers[2];
    strata_stack *stack;
    if (strata_guard_create(0, &options, &layers[0]) != STRATA_SUCCESS)
        return false;
    *guard = layers[0];
    return strata_async_create(0, NULL, &layers[1]) == STRATA_SUCCESS &&
           strata_stack_build(layers, 2, 0, &stack) == STRATA_SUCCESS &&
           strata_runtime_create(&(strata_runtime_config){.stack = stack}, out) == STRATA_SUCCESS;
}

/* The bug: the block has 100 bytes, the fill 104. */
static bool fill_too_much(const cuda_calls *cu, strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    return strata_runtime_prepare_block_use(runtime, block, stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
           cu->MemsetD8Async(block->address, 0, 104, stream) == CUDA_SUCCESS &&
           strata_runtime_finish_block_use(runtime, block, stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS;
}

static bool run(const cuda_calls *cu, strata_runtime *runtime, strata_resource *guard)
{
    CUstream stream;
    strata_block block;
    strata_request request = {.bytes = 100};
    if (strata_runtime_stream_acquire(runtime, &stream) != STRATA_SUCCESS)
        return false;
    request.stream = stream;
    bool done = strata_tag_intern("weights", &request.tag) == STRATA_SUCCESS &&
                strata_runtime_allocate_request(runtime, &request, &block) == STRATA_SUCCESS;
    if (done)
        done = fill_too_much(cu, runtime, &block, stream) &&
               strata_runtime_deallocate(runtime, &block) == STRATA_SUCCESS &&
               strata_guard_check(guard, NULL) == STRATA_ERROR_CORRUPTED;
    return strata_runtime_stream_release(runtime, stream) == STRATA_SUCCESS && done;
}

int main(void)
{
    cuda_calls cu;
    strata_runtime *runtime;
    strata_resource *guard;
    int found = 0;
    bool done = cuda_open(&cu) && make_runtime(&found, &runtime, &guard) && run(&cu, runtime, guard) &&
                strata_runtime_destroy(runtime) == STRATA_SUCCESS;
    if (!done)
        fprintf(stderr, "%s\n", strata_last_error()->message);
    return done && found == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
