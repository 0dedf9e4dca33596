/* A graph whose temporaries share memory: a pool of the graph's own, as frameworks keep one for what they capture.
 *
 * Strata hands out no memory on a stream that is being captured. So the captured stream has another one beside it, its
 * stand-in, which is not captured and never has work: blocks are allocated and freed there, in the order in which the
 * captured stream uses them. What is freed serves the next request, and the graph's own order keeps the two uses apart.
 * Where a capture forks, each branch that needs temporaries has such a pool for itself: as far as one pool knows, what
 * was freed on a stand-in is done, and any other may have it.
 *
 * The graph runs later, at the addresses that it was captured with, so the memory behind them must stay: a hold on each
 * block sees to that, the pool moves nothing of it and gives nothing of it back, and nobody else allocates here. The
 * graph ends first, then the holds, then the pool. */
#include "cuda_calls.h"

#include <stdlib.h>

enum { STEPS = 6, TEMPORARY = 8 << 20, RESULT = 1 << 16, LAUNCHES = 3 };

static cuda_calls cu;

static struct {
    PFN_cuStreamCreate_v2000 create_stream;
    PFN_cuStreamDestroy_v4000 destroy_stream;
    PFN_cuStreamBeginCapture_v10010 begin_capture;
    PFN_cuStreamEndCapture_v10000 end_capture;
    PFN_cuMemcpyDtoDAsync_v3020 copy;
    PFN_cuGraphInstantiateWithFlags_v11040 instantiate;
    PFN_cuGraphLaunch_v10000 launch;
    PFN_cuGraphExecDestroy_v10000 destroy_exec;
    PFN_cuGraphDestroy_v10000 destroy_graph;
} more;

static bool find_more(void)
{
    return cuda_find(cu.get, "cuStreamCreate", 2000, &more.create_stream) &&
           cuda_find(cu.get, "cuStreamDestroy", 4000, &more.destroy_stream) &&
           cuda_find(cu.get, "cuStreamBeginCapture", 10010, &more.begin_capture) &&
           cuda_find(cu.get, "cuStreamEndCapture", 10000, &more.end_capture) &&
           cuda_find(cu.get, "cuMemcpyDtoDAsync", 3020, &more.copy) &&
           cuda_find(cu.get, "cuGraphInstantiateWithFlags", 11040, &more.instantiate) &&
           cuda_find(cu.get, "cuGraphLaunch", 10000, &more.launch) &&
           cuda_find(cu.get, "cuGraphExecDestroy", 10000, &more.destroy_exec) &&
           cuda_find(cu.get, "cuGraphDestroy", 10000, &more.destroy_graph);
}

/* ---- the memory of a graph ---- */

typedef struct graph_memory {
    strata_runtime *runtime;
    CUstream stand_in;
    strata_pool_hold *holds[STEPS + 1];
    size_t held;
} graph_memory;

static bool graph_memory_begin(graph_memory *memory)
{
    *memory = (graph_memory){0};
    return strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &memory->runtime) == STRATA_SUCCESS &&
           strata_runtime_stream_acquire(memory->runtime, &memory->stand_in) == STRATA_SUCCESS;
}

static bool graph_allocate(graph_memory *memory, size_t bytes, strata_block *block)
{
    strata_resource *stack = strata_stack_top(strata_runtime_stack(memory->runtime));
    return strata_runtime_allocate(memory->runtime, bytes, memory->stand_in, block) == STRATA_SUCCESS &&
           strata_pool_hold_begin(stack, block, &memory->holds[memory->held]) == STRATA_SUCCESS && ++memory->held;
}

/* From here on the memory is the next temporary's. */
static bool graph_free(graph_memory *memory, const strata_block *block)
{
    return strata_runtime_deallocate(memory->runtime, block) == STRATA_SUCCESS;
}

/* When the graph is gone, and its last launch over. */
static bool graph_memory_end(graph_memory *memory)
{
    for (size_t i = 0; i < memory->held; i++)
        strata_pool_hold_end(memory->holds[i]);
    return strata_runtime_stream_release(memory->runtime, memory->stand_in) == STRATA_SUCCESS &&
           strata_runtime_destroy(memory->runtime) == STRATA_SUCCESS;
}

/* ---- the graph ---- */

/* Each step has a temporary of its own, and leaves its number in its part of the result. */
static bool submit_steps(graph_memory *memory, CUstream captured, const strata_block *result)
{
    bool done = true;
    for (unsigned step = 0; step < STEPS && done; step++) {
        strata_block temporary;
        done = graph_allocate(memory, TEMPORARY, &temporary) &&
               cu.MemsetD8Async(temporary.address, (unsigned char)(step + 1), TEMPORARY, captured) == CUDA_SUCCESS &&
               more.copy(result->address + (CUdeviceptr)step * RESULT, temporary.address + TEMPORARY - RESULT, RESULT,
                         captured) == CUDA_SUCCESS &&
               graph_free(memory, &temporary);
    }
    return done;
}

static bool capture(graph_memory *memory, CUstream stream, const strata_block *result, CUgraphExec *exec)
{
    CUgraph graph = NULL;
    if (more.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS)
        return false;
    bool done = submit_steps(memory, stream, result);
    done = more.end_capture(stream, &graph) == CUDA_SUCCESS && done;
    done = done && more.instantiate(exec, graph, 0) == CUDA_SUCCESS;
    return graph && more.destroy_graph(graph) == CUDA_SUCCESS && done;
}

static bool is_right(const unsigned char *host)
{
    for (size_t i = 0; i < (size_t)STEPS * RESULT; i++)
        if (host[i] != i / RESULT + 1)
            return false;
    return true;
}

/* The result is a live block, which other streams may use, too: a launch is a use of it like any other. */
static bool launch_and_look(graph_memory *memory, CUstream stream, const strata_block *result, CUgraphExec exec)
{
    static unsigned char host[STEPS * RESULT];
    memset(host, 0, sizeof host);
    return strata_runtime_prepare_block_use(memory->runtime, result, stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
           more.launch(exec, stream) == CUDA_SUCCESS &&
           cu.MemcpyDtoHAsync(host, result->address, sizeof host, stream) == CUDA_SUCCESS &&
           strata_runtime_finish_block_use(memory->runtime, result, stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
           cu.StreamSynchronize(stream) == CUDA_SUCCESS && is_right(host);
}

static bool run(graph_memory *memory, CUstream stream)
{
    strata_block result;
    CUgraphExec exec = NULL;
    uint64_t reserved = 0;
    bool right = graph_allocate(memory, (size_t)STEPS * RESULT, &result) && capture(memory, stream, &result, &exec);
    for (int i = 0; i < LAUNCHES && right; i++)
        right = launch_and_look(memory, stream, &result, exec);
    right = right &&
            strata_control(strata_runtime_stack(memory->runtime), "pool.reserved", &reserved, NULL) == STRATA_SUCCESS;
    if (right)
        printf("%d temporaries of %d MiB, %d launches: %llu MiB reserved\n", STEPS, TEMPORARY >> 20, LAUNCHES,
               (unsigned long long)reserved >> 20);
    if (exec)
        right = more.destroy_exec(exec) == CUDA_SUCCESS && right;
    return graph_free(memory, &result) && right;
}

int main(void)
{
    graph_memory memory;
    CUstream stream;
    if (!cuda_open(&cu) || !find_more() || more.create_stream(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        !graph_memory_begin(&memory))
        return EXIT_FAILURE;
    bool right = run(&memory, stream);
    right = graph_memory_end(&memory) && right;
    right = more.destroy_stream(stream) == CUDA_SUCCESS && right;
    if (!right)
        fprintf(stderr, "it went wrong: %s\n", strata_last_error()->message);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
