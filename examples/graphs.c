/* Steps of a loop, launched one by one and as a graph. A step fills a temporary, copies it into the state, and frees
 * it; the graph does the same from one launch, with memory that is always there. */
#include "cuda_calls.h"

#include <stdlib.h>
#include <time.h>

enum { LAYERS = 16, STEPS = 200, BYTES = 1 << 20 };

static cuda_calls cu;
static PFN_cuMemcpyDtoDAsync_v3020 copy_on_device;

/* One layer: a temporary is filled and copied into the state. */
static strata_status run_layer(strata_runtime *runtime, const strata_block *state, unsigned char value, CUstream stream)
{
    strata_block scratch;
    strata_launch launch;
    strata_status status = strata_runtime_allocate(runtime, BYTES, stream, &scratch);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT);
    if (status == STRATA_SUCCESS) {
        strata_launch_use(&launch, &scratch, STRATA_ACCESS_READ_WRITE);
        strata_launch_use(&launch, state, STRATA_ACCESS_WRITE);
        status = strata_launch_preflight(&launch);
        if (status == STRATA_SUCCESS) {
            const bool submitted = cu.MemsetD8Async(scratch.address, value, BYTES, stream) == CUDA_SUCCESS &&
                                   copy_on_device(state->address, scratch.address, BYTES, stream) == CUDA_SUCCESS;
            status = submitted ? strata_launch_commit(&launch) : strata_launch_cancel(&launch);
            status = submitted ? status : STRATA_ERROR_DRIVER;
        }
        strata_launch_end(&launch);
    }
    const strata_status freed = strata_runtime_deallocate_on(runtime, &scratch, stream);
    return status == STRATA_SUCCESS ? freed : status;
}

static strata_status run_step(strata_runtime *runtime, const strata_block *state, CUstream stream)
{
    strata_status status = STRATA_SUCCESS;
    for (unsigned char layer = 1; layer <= LAYERS && status == STRATA_SUCCESS; layer++)
        status = run_layer(runtime, state, layer, stream);
    return status;
}

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static strata_status run_steps(strata_runtime *runtime, const strata_block *state, strata_graph *graph, CUstream stream)
{
    struct timespec start;
    strata_status status = STRATA_SUCCESS;
    timespec_get(&start, TIME_UTC);
    for (int step = 0; step < STEPS && status == STRATA_SUCCESS; step++)
        status = graph ? strata_graph_launch(graph, stream) : run_step(runtime, state, stream);
    const double submitted = seconds_since(&start);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_stream_synchronize(runtime, stream);
    printf("%-12s %d steps: %.1f us a step to submit, %.1f us in all\n", graph ? "as a graph" : "one by one", STEPS,
           submitted / STEPS * 1e6, seconds_since(&start) / STEPS * 1e6);
    return status;
}

static strata_status capture_step(strata_runtime *runtime, const strata_block *state, CUstream stream,
                                  strata_graph **graph)
{
    strata_status status = strata_capture_begin(runtime, stream, STRATA_CAPTURE_GLOBAL, NULL);
    if (status != STRATA_SUCCESS)
        return status;
    status = run_step(runtime, state, stream);
    if (status == STRATA_SUCCESS)
        return strata_capture_end(runtime, stream, graph);
    strata_capture_discard(runtime, stream);
    return status;
}

static strata_status run(strata_runtime *runtime, CUstream stream)
{
    strata_block state;
    strata_graph *graph = NULL;
    strata_capture_pool_usage usage;
    strata_status status = strata_runtime_allocate(runtime, BYTES, stream, &state);
    if (status == STRATA_SUCCESS)
        status = run_steps(runtime, &state, NULL, stream);
    if (status == STRATA_SUCCESS)
        status = capture_step(runtime, &state, stream, &graph);
    if (status == STRATA_SUCCESS)
        status = run_steps(runtime, &state, graph, stream);
    if (status == STRATA_SUCCESS) {
        strata_capture_pool_get_usage(strata_graph_pool(graph), &usage);
        printf("%zu nodes, %zu bytes for %d temporaries of %d bytes\n", strata_graph_node_count(graph), usage.reserved,
               LAYERS, BYTES);
    }
    strata_graph_destroy(graph);
    strata_runtime_deallocate_on(runtime, &state, stream);
    return status;
}

int main(void)
{
    strata_runtime *runtime;
    CUstream stream;
    if (!cuda_open(&cu) || !cuda_find(cu.get_proc_address, "cuMemcpyDtoDAsync", 3020, &copy_on_device))
        return EXIT_FAILURE;
    strata_status status = strata_runtime_get(0, &runtime);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_stream_acquire(runtime, &stream);
    if (status == STRATA_SUCCESS) {
        status = run(runtime, stream);
        strata_runtime_stream_release(runtime, stream);
    }
    if (status == STRATA_SUCCESS)
        return EXIT_SUCCESS;
    fprintf(stderr, "%s\n", strata_last_error()->message);
    return EXIT_FAILURE;
}
