/* Entry points: nodes. */
#include "driver/enter.h"

/* Enters a call that adds a node. After a failure the lock is not held. */
static CUresult enter_graph(const char *entry, const CUgraphNode *out, CUgraph graph)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    return out && sim_graph_valid(graph) ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_VALUE);
}

/* Adds the node, unless its parameters are bad. After a failure the lock is not held. */
static CUresult add(CUresult params, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeType type,
                    CUgraphNode *node)
{
    CUresult result = params == CUDA_SUCCESS ? sim_dependencies_check(graph, after, count) : params;
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    *node = sim_node_create(graph, type, after, count);
    if (!*node)
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    (*node)->made = sim_check_made();
    return CUDA_SUCCESS;
}

static CUresult begin(const char *entry, CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                      CUgraphNodeType type, CUgraphNode *node)
{
    CUresult result = enter_graph(entry, out, graph);
    return result == CUDA_SUCCESS ? add(CUDA_SUCCESS, graph, after, count, type, node) : result;
}

static CUresult end(CUgraphNode *out, CUgraphNode node, CUresult result)
{
    if (result == CUDA_SUCCESS)
        *out = node;
    else
        sim_node_free(node);
    return sim_leave(result);
}

/* Enters a call about a node of that type. After a failure the lock is not held. */
static CUresult enter_node(const char *entry, CUgraphNode node, CUgraphNodeType type, const void *params)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    bool good = sim_node_valid(node) && node->type == type && params;
    return good ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                             size_t numDependencies)
{
    CUgraphNode node;
    CUresult result =
        begin(__func__, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY, &node);
    return result == CUDA_SUCCESS ? end(phGraphNode, node, CUDA_SUCCESS) : result;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    CUgraphNode node;
    CUresult result =
        begin(__func__, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET, &node);
    if (result != CUDA_SUCCESS)
        return result;
    return end(phGraphNode, node, sim_fill_describe(&node->what, memsetParams, ctx));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams);
    if (result != CUDA_SUCCESS)
        return result;
    const sim_op *what = &hNode->what;
    *nodeParams = (CUDA_MEMSET_NODE_PARAMS){
        .dst = what->work.fill.address,
        .pitch = what->work.fill.pitch,
        .value = what->work.fill.value,
        .elementSize = (unsigned)what->work.fill.width,
        .width = what->work.fill.count,
        .height = what->work.fill.rows,
    };
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_fill_describe(&hNode->what, nodeParams, hNode->what.context));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    CUgraphNode node;
    CUresult result =
        begin(__func__, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY, &node);
    if (result != CUDA_SUCCESS)
        return result;
    return end(phGraphNode, node, sim_copy_describe(&node->what, &node->copy, copyParams, ctx));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams);
    if (result != CUDA_SUCCESS)
        return result;
    *nodeParams = hNode->copy;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_copy_describe(&hNode->what, &hNode->copy, nodeParams, hNode->what.context));
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    CUgraphNode node;
    CUresult result =
        begin(__func__, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL, &node);
    if (result != CUDA_SUCCESS)
        return result;
    return end(phGraphNode, node, sim_kernel_set(&node->what, nodeParams));
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    if (!nodeParams)
        return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, NULL);
    params = sim_kernel_newer(nodeParams);
    return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams);
    if (result != CUDA_SUCCESS)
        return result;
    sim_kernel_describe(hNode->what.work.kernel, nodeParams);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    CUresult result = cuGraphKernelNodeGetParams_v2(hNode, nodeParams ? &params : NULL);
    if (result == CUDA_SUCCESS) {
        *nodeParams = (CUDA_KERNEL_NODE_PARAMS_v1){
            params.func,      params.gridDimX,  params.gridDimY,       params.gridDimZ,     params.blockDimX,
            params.blockDimY, params.blockDimZ, params.sharedMemBytes, params.kernelParams, params.extra};
    }
    return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_kernel_set(&hNode->what, nodeParams));
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    if (!nodeParams)
        return cuGraphKernelNodeSetParams_v2(hNode, NULL);
    params = sim_kernel_newer(nodeParams);
    return cuGraphKernelNodeSetParams_v2(hNode, &params);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    CUgraphNode node;
    CUresult result =
        begin(__func__, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST, &node);
    if (result != CUDA_SUCCESS)
        return result;
    return end(phGraphNode, node, sim_host_describe(&node->what, nodeParams));
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams);
    if (result != CUDA_SUCCESS)
        return result;
    nodeParams->fn = hNode->what.work.host.function;
    nodeParams->userData = hNode->what.work.host.data;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_host_describe(&hNode->what, nodeParams));
}

static CUresult add_event_node(const char *entry, CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
                               size_t count, CUevent event, CUgraphNodeType type)
{
    CUgraphNode node;
    CUresult result = begin(entry, out, graph, after, count, type, &node);
    if (result != CUDA_SUCCESS)
        return result;
    node->event = event;
    return end(out, node, sim_slab_has(&sim_order.events, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult get_event(const char *entry, CUgraphNode node, CUgraphNodeType type, CUevent *event)
{
    CUresult result = enter_node(entry, node, type, event);
    if (result != CUDA_SUCCESS)
        return result;
    *event = node->event;
    return sim_leave(CUDA_SUCCESS);
}

static CUresult set_event(const char *entry, CUgraphNode node, CUgraphNodeType type, CUevent event)
{
    CUresult result = enter_node(entry, node, type, event);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_slab_has(&sim_order.events, event))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    node->event = event;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, CUevent event)
{
    return add_event_node(__func__, phGraphNode, hGraph, dependencies, numDependencies, event,
                          CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    return get_event(__func__, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    return set_event(__func__, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, CUevent event)
{
    return add_event_node(__func__, phGraphNode, hGraph, dependencies, numDependencies, event,
                          CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    return get_event(__func__, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    return set_event(__func__, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, CUgraph childGraph)
{
    CUresult result = enter_graph(__func__, phGraphNode, hGraph);
    if (result != CUDA_SUCCESS)
        return result;
    CUgraphNode node;
    result = add(sim_child_good(childGraph), hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH, &node);
    if (result != CUDA_SUCCESS)
        return result;
    return end(phGraphNode, node, sim_node_embed(node, childGraph));
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph);
    if (result != CUDA_SUCCESS)
        return result;
    *phGraph = hNode->child;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    CUresult result = enter_graph(__func__, phGraphNode, hGraph);
    if (result != CUDA_SUCCESS)
        return result;
    CUgraphNode node;
    result = add(sim_allocation_good(hGraph, nodeParams), hGraph, dependencies, numDependencies,
                 CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_allocation_add(node, sim_device_of(nodeParams->poolProps.location.id), nodeParams->bytesize);
    if (result == CUDA_SUCCESS)
        nodeParams->dptr = node->memory->block.address;
    return end(phGraphNode, node, result);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out);
    if (result != CUDA_SUCCESS)
        return result;
    const sim_block *block = &hNode->memory->block;
    *params_out = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = block->device->ordinal}},
        .bytesize = block->bytes,
        .dptr = block->address,
    };
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               size_t numDependencies, CUdeviceptr dptr)
{
    CUresult result = enter_graph(__func__, phGraphNode, hGraph);
    if (result != CUDA_SUCCESS)
        return result;
    hGraph->allocates = true;
    CUgraphNode node;
    result = add(CUDA_SUCCESS, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_FREE, &node);
    if (result != CUDA_SUCCESS)
        return result;
    return end(phGraphNode, node, sim_free_add(node, dptr));
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    CUresult result = enter_node(__func__, hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out);
    if (result != CUDA_SUCCESS)
        return result;
    *dptr_out = hNode->memory->block.address;
    return sim_leave(CUDA_SUCCESS);
}
