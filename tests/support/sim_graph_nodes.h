/* Graphs of fills and copies, made node by node. */
#ifndef STRATA_TESTS_SUPPORT_SIM_GRAPH_NODES_H
#define STRATA_TESTS_SUPPORT_SIM_GRAPH_NODES_H

#include "support/sim_graph.h"

static inline CUgraph new_graph(void)
{
    CUgraph graph;
    OK(p_cuGraphCreate(&graph, 0));
    return graph;
}

static inline CUDA_MEMSET_NODE_PARAMS a_fill(CUdeviceptr address, unsigned value)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = address, .value = value, .elementSize = 1, .width = 1, .height = 1};
}

static inline CUgraphNode add_fill(CUgraph graph, CUgraphNode after, CUdeviceptr address, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS params = a_fill(address, value);
    CUgraphNode node;
    OK(p_cuGraphAddMemsetNode(&node, graph, after ? &after : NULL, after ? 1 : 0, &params, NULL));
    return node;
}

static inline CUgraphNode add_copy(CUgraph graph, CUgraphNode after, CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY3D params = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .WidthInBytes = 1,
        .Height = 1,
        .Depth = 1,
    };
    CUgraphNode node;
    OK(p_cuGraphAddMemcpyNode(&node, graph, after ? &after : NULL, after ? 1 : 0, &params, NULL));
    return node;
}

static inline CUgraphExec instantiate(CUgraph graph, unsigned long long flags)
{
    CUgraphExec exec;
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
}

static inline void run(CUgraphExec exec, CUstream stream)
{
    OK(p_cuGraphLaunch(exec, stream));
    OK(p_cuStreamSynchronize(stream));
}

#endif
