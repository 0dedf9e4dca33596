/* Rarer ways to what other programs here do by the usual ones: `rarer NAME`. What each prints is the same with and
 * without Strata. */
#include "ways.h"
#include "wider_calls.h"

static CUgraph new_graph(void)
{
    CUgraph graph;
    CHECK(DRIVER(cuGraphCreate)(&graph, 0));
    return graph;
}

/* ---- nodes that make memory, of any kind of node's call, and a graph that is uploaded ---- */

static size_t free_mebibytes(void)
{
    size_t free_bytes, total;
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    return free_bytes / MIB;
}

static CUgraphNodeParams memory_node(size_t bytes)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.alloc.poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    params.alloc.bytesize = bytes;
    return params;
}

static void upload_and_launch(const char *name, CUgraph graph, CUgraphNode made, CUdeviceptr block)
{
    CUgraphNode freed;
    CUgraphExec exec;
    WIDER(cuGraphUpload, "cuGraphUpload", 12000);
    const size_t before = free_mebibytes();
    CHECK(DRIVER(cuGraphAddMemFreeNode)(&freed, graph, &made, 1, block));
    CHECK(DRIVER(cuGraphInstantiate)(&exec, graph, 0));
    CHECK(cuGraphUpload_found(exec, 0));
    CHECK(DRIVER(cuCtxSynchronize)());
    printf("%s: uploaded: %zu MiB less free", name, before - free_mebibytes());
    CHECK(DRIVER(cuGraphLaunch)(exec, 0));
    CHECK(DRIVER(cuCtxSynchronize)());
    printf(", launched: %zu", before - free_mebibytes());
    CHECK(DRIVER(cuGraphExecDestroy)(exec));
    CHECK(DRIVER(cuDeviceGraphMemTrim)(0));
    printf(", trimmed: %zu\n", before - free_mebibytes());
}

static void use_the_first_form(void)
{
    CUgraphNode made;
    const CUgraph graph = new_graph();
    CUgraphNodeParams params = memory_node(32 * MIB);
    WIDER(cuGraphAddNode, "cuGraphAddNode", 12020);
    CHECK(cuGraphAddNode_found(&made, graph, NULL, 0, &params));
    upload_and_launch("first form", graph, made, params.alloc.dptr);
}

static void use_the_second_form(void)
{
    CUgraphNode made;
    const CUgraph graph = new_graph();
    CUgraphNodeParams params = memory_node(64 * MIB);
    WIDER(cuGraphAddNode_v2, "cuGraphAddNode", 12030);
    CHECK(cuGraphAddNode_v2_found(&made, graph, NULL, NULL, 0, &params));
    upload_and_launch("second form", graph, made, params.alloc.dptr);
}

/* ---- a capture into a graph that is there ---- */

static void capture_to_a_graph(void)
{
    CUstream stream;
    CUgraph captured;
    CUdeviceptr block, before;
    WIDER(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030);
    CHECK(DRIVER(cuStreamCreate)(&stream, 0)); /* the legacy stream is not to be used beside it */
    CHECK(DRIVER(cuMemAlloc)(&before, MIB));
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        CHECK(cuStreamBeginCaptureToGraph_found(stream, new_graph(), NULL, NULL, 0, (CUstreamCaptureMode)mode));
        CHECK(DRIVER(cuMemsetD8Async)(before, 1, MIB, stream));
        const CUresult allocated = DRIVER(cuMemAlloc)(&block, MIB);
        printf("mode %d: cuMemAlloc gave %d", mode, allocated);
        printf(", the capture's end %d\n", DRIVER(cuStreamEndCapture)(stream, &captured));
        if (allocated == CUDA_SUCCESS)
            CHECK(DRIVER(cuMemFree)(block));
    }
    CHECK(DRIVER(cuMemFree)(before));
    CHECK(DRIVER(cuStreamDestroy)(stream));
}

/* ---- a pool of the program's own, by its location ---- */

static void say_pool(const char *when, CUmemoryPool own)
{
    CUdeviceptr block;
    CUmemoryPool pool = NULL;
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, 0));
    CHECK(DRIVER(cuPointerGetAttribute)(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    printf("%s: %s\n", when, pool == own ? "of the program's pool" : "not of the program's pool");
    CHECK(DRIVER(cuMemFreeAsync)(block, 0));
}

static void set_a_pool_by_its_location(void)
{
    CUmemoryPool own, standard;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemLocation location = properties.location;
    WIDER(cuMemSetMemPool, "cuMemSetMemPool", 13000);
    CHECK(DRIVER(cuMemPoolCreate)(&own, &properties));
    CHECK(DRIVER(cuDeviceGetDefaultMemPool)(&standard, 0));
    say_pool("at first", own);
    CHECK(cuMemSetMemPool_found(&location, CU_MEM_ALLOCATION_TYPE_PINNED, own));
    say_pool("set", own);
    CHECK(cuMemSetMemPool_found(&location, CU_MEM_ALLOCATION_TYPE_PINNED, standard));
    say_pool("taken back", own);
    CHECK(DRIVER(cuMemPoolDestroy)(own));
}

static const named_way ways[] = {
    {"node", use_the_first_form},
    {"node-2", use_the_second_form},
    {"to-graph", capture_to_a_graph},
    {"set-pool", set_a_pool_by_its_location},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
