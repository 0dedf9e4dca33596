/* A graph whose temporaries share memory, where other code, such as a framework, captures the stream; examples/graphs.c
 * captures it through Strata, which is simpler. The graph has its own pool.
 *
 * Strata allocates no memory on a stream that other code captures. The captured stream therefore has a stand-in: a
 * stream that is not captured and has no work. The program allocates and frees blocks on the stand-in, in the order in
 * which the captured stream uses them. The next request reuses a freed block's memory; the graph's own order keeps the
 * two uses apart. A capture that forks needs such a pool for each branch with temporaries: one pool takes a block freed
 * on a stand-in for done and may give it to any other stream.
 *
 * The graph is launched later, with the addresses that it was captured with. So the memory must stay mapped: a hold on
 * each block keeps the pool from remapping or releasing it, and no other code allocates from this pool. The graph is
 * destroyed first, then the holds end, then the pool is destroyed. */
#include "cuda_calls.h"

#include <stdlib.h>

enum { STEPS = 6, TEMPORARY = 8 << 20, RESULT = 1 << 16, LAUNCHES = 3 };

static cuda_calls cu;

/* Returns whether the call succeeded, and prints its error. */
static bool cuda_ok(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS)
        fprintf(stderr, "%s: the driver answers %d\n", what, result);
    return result == CUDA_SUCCESS;
}

static bool ok(strata_status status)
{
    if (status != STRATA_SUCCESS)
        fprintf(stderr, "%s\n", strata_last_error()->message);
    return status == STRATA_SUCCESS;
}

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
} graph_calls;

static bool find_graph_calls(void)
{
    return cuda_find(cu.get_proc_address, "cuStreamCreate", 2000, &graph_calls.create_stream) &&
           cuda_find(cu.get_proc_address, "cuStreamDestroy", 4000, &graph_calls.destroy_stream) &&
           cuda_find(cu.get_proc_address, "cuStreamBeginCapture", 10010, &graph_calls.begin_capture) &&
           cuda_find(cu.get_proc_address, "cuStreamEndCapture", 10000, &graph_calls.end_capture) &&
           cuda_find(cu.get_proc_address, "cuMemcpyDtoDAsync", 3020, &graph_calls.copy) &&
           cuda_find(cu.get_proc_address, "cuGraphInstantiateWithFlags", 11040, &graph_calls.instantiate) &&
           cuda_find(cu.get_proc_address, "cuGraphLaunch", 10000, &graph_calls.launch) &&
           cuda_find(cu.get_proc_address, "cuGraphExecDestroy", 10000, &graph_calls.destroy_exec) &&
           cuda_find(cu.get_proc_address, "cuGraphDestroy", 10000, &graph_calls.destroy_graph);
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
    if (!ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &memory->runtime)))
        return false;
    if (ok(strata_runtime_stream_acquire(memory->runtime, &memory->stand_in)))
        return true;
    strata_runtime_destroy(memory->runtime);
    return false;
}

/* The next temporary may reuse the memory. */
static bool graph_free(graph_memory *memory, const strata_block *block)
{
    return ok(strata_runtime_deallocate(memory->runtime, block));
}

static bool graph_allocate(graph_memory *memory, size_t bytes, strata_block *block)
{
    strata_resource *stack = strata_stack_top(strata_runtime_stack(memory->runtime));
    if (memory->held == sizeof memory->holds / sizeof memory->holds[0] ||
        !ok(strata_runtime_allocate(memory->runtime, bytes, memory->stand_in, block)))
        return false;
    if (ok(strata_pool_hold_begin(stack, block, &memory->holds[memory->held]))) {
        memory->held++;
        return true;
    }
    graph_free(memory, block);
    return false;
}

/* Called when the graph is destroyed and its last launch has completed. */
static bool graph_memory_end(graph_memory *memory)
{
    for (size_t i = 0; i < memory->held; i++)
        strata_pool_hold_end(memory->holds[i]);
    bool released = ok(strata_runtime_stream_release(memory->runtime, memory->stand_in));
    return ok(strata_runtime_destroy(memory->runtime)) && released;
}

/* ---- the graph ---- */

/* Each step fills its own temporary with its number, and copies a part of it to its place in the result. */
static bool submit_step(const strata_block *temporary, unsigned step, CUstream captured, const strata_block *result)
{
    return cuda_ok(cu.MemsetD8Async(temporary->address, (unsigned char)(step + 1), TEMPORARY, captured), "a fill") &&
           cuda_ok(graph_calls.copy(result->address + (CUdeviceptr)step * RESULT,
                                    temporary->address + TEMPORARY - RESULT, RESULT, captured),
                   "a copy");
}

static bool submit_steps(graph_memory *memory, CUstream captured, const strata_block *result)
{
    bool done = true;
    for (unsigned step = 0; step < STEPS && done; step++) {
        strata_block temporary;
        if (!graph_allocate(memory, TEMPORARY, &temporary))
            return false;
        done = submit_step(&temporary, step, captured, result);
        done = graph_free(memory, &temporary) && done;
    }
    return done;
}

static bool capture(graph_memory *memory, CUstream stream, const strata_block *result, CUgraphExec *exec)
{
    CUgraph graph = NULL;
    if (!cuda_ok(graph_calls.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "the beginning of a capture"))
        return false;
    bool done = submit_steps(memory, stream, result);
    done = cuda_ok(graph_calls.end_capture(stream, &graph), "the end of a capture") && done;
    done = done && cuda_ok(graph_calls.instantiate(exec, graph, 0), "making a graph");
    return (!graph || cuda_ok(graph_calls.destroy_graph(graph), "ending a graph")) && done;
}

static bool is_right(const unsigned char *host)
{
    for (size_t i = 0; i < (size_t)STEPS * RESULT; i++)
        if (host[i] != i / RESULT + 1)
            return false;
    return true;
}

/* The result is a live block that other streams may use too, so a launch is bracketed as any other use of it. */
static bool launch_and_look(graph_memory *memory, CUstream stream, const strata_block *result, CUgraphExec exec)
{
    static unsigned char host[STEPS * RESULT];
    memset(host, 0, sizeof host);
    if (!ok(strata_runtime_prepare_block_use(memory->runtime, result, stream, STRATA_ACCESS_WRITE)))
        return false;
    bool launched = cuda_ok(graph_calls.launch(exec, stream), "a launch");
    bool done = launched && cuda_ok(cu.MemcpyDtoHAsync(host, result->address, sizeof host, stream), "a copy");
    done = ok(strata_runtime_finish_block_use(memory->runtime, result, stream,
                                              launched ? STRATA_ACCESS_WRITE : STRATA_ACCESS_NONE)) &&
           done;
    return cuda_ok(cu.StreamSynchronize(stream), "waiting for a launch") && done && is_right(host);
}

/* Memory without a hold goes back to the device here. Without the holds the graph would access unmapped addresses. */
static bool give_back_what_is_free(graph_memory *memory)
{
    return ok(strata_runtime_reap_pending(memory->runtime)) && ok(strata_runtime_trim(memory->runtime, 0, NULL));
}

/* Whether all temporaries together take less memory than two. */
static bool is_shared(graph_memory *memory)
{
    uint64_t reserved = 0;
    if (!ok(strata_control(strata_runtime_stack(memory->runtime), "pool.reserved", &reserved, NULL)))
        return false;
    printf("%d temporaries of %d MiB, %d launches: %llu MiB reserved\n", STEPS, TEMPORARY >> 20, LAUNCHES,
           (unsigned long long)reserved >> 20);
    return reserved < 2 * TEMPORARY;
}

static bool run(graph_memory *memory, CUstream stream)
{
    strata_block result;
    CUgraphExec exec = NULL;
    if (!graph_allocate(memory, (size_t)STEPS * RESULT, &result))
        return false;
    bool right = capture(memory, stream, &result, &exec) && give_back_what_is_free(memory);
    for (int i = 0; i < LAUNCHES && right; i++)
        right = launch_and_look(memory, stream, &result, exec);
    right = right && is_shared(memory);
    if (exec)
        right = cuda_ok(graph_calls.destroy_exec(exec), "ending a graph") && right;
    return graph_free(memory, &result) && right;
}

int main(void)
{
    graph_memory memory;
    CUstream stream;
    if (!cuda_open(&cu) || !find_graph_calls() ||
        !cuda_ok(graph_calls.create_stream(&stream, CU_STREAM_NON_BLOCKING), "making a stream"))
        return EXIT_FAILURE;
    bool begun = graph_memory_begin(&memory), right = begun && run(&memory, stream);
    right = (!begun || graph_memory_end(&memory)) && right;
    right = cuda_ok(graph_calls.destroy_stream(stream), "ending a stream") && right;
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
