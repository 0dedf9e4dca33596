/* Child graph and memory nodes. */
#include "graph/graph.h"

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
    CUresult result = sim_graph_memory_create(node, device, bytes);
    if (result == CUDA_SUCCESS)
        node->what.kind = SIM_OP_ALLOCATE;
    return result;
}

/* Whether the memory is allocated is checked at launch. */
CUresult sim_free_add(CUgraphNode node, CUdeviceptr address)
{
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

CUresult sim_node_allocation_good(const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (!params || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || params->bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_of(params->poolProps.location.id))
        return CUDA_ERROR_INVALID_VALUE;
    return params->poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}
