/* Child graph and memory nodes. What is asked of a node's parameters comes before what is asked of its dependencies: a
 * graph counts as one with memory even if the call fails by the latter. */
#include "graph/graph.h"

/* ---- parameters ---- */

CUresult sim_allocation_good(CUgraph graph, const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (!params || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || params->bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_of(params->poolProps.location.id))
        return CUDA_ERROR_INVALID_VALUE;
    if (params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    graph->allocates = true;
    return CUDA_SUCCESS;
}

CUresult sim_child_good(CUgraph child)
{
    if (!sim_graph_valid(child))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_graph_has_memory(child) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* ---- addition ---- */

/* A graph in itself is refused: an H200's driver crashes (seen 2026-11-30). */
CUresult sim_node_embed(CUgraphNode node, CUgraph child)
{
    if (!sim_graph_valid(child) || child == node->graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_graph_clone(child, &node->child);
    if (result == CUDA_SUCCESS)
        node->child->embedded = true;
    return result;
}

CUresult sim_allocation_add(CUgraphNode node, sim_device *device, uint64_t bytes)
{
    node->graph->allocates = true;
    CUresult result = sim_graph_memory_create(node, device, bytes);
    if (result == CUDA_SUCCESS)
        node->what.kind = SIM_OP_ALLOCATE;
    return result;
}

/* Whether the memory is allocated is checked at launch. */
CUresult sim_free_add(CUgraphNode node, CUdeviceptr address)
{
    node->graph->allocates = true;
    sim_graph_memory *memory = sim_graph_memory_find(address, node->graph);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    if (memory->graph == node->graph->id)
        memory->freed = node;
    else
        memory->foreign_frees++;
    node->memory = sim_graph_memory_hold(memory);
    node->what.kind = SIM_OP_FREE;
    return CUDA_SUCCESS;
}
