/* Entry points: nodes of any type from one struct, and conditions. */
#include "driver/enter.h"

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                        unsigned int defaultLaunchValue, unsigned int flags)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_condition_create(hGraph, ctx, defaultLaunchValue, flags, pHandle_out));
}

static CUresult describe_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v3 *params)
{
    const CUDA_KERNEL_NODE_PARAMS kernel = {
        .func = params->func,
        .gridDimX = params->gridDimX,
        .gridDimY = params->gridDimY,
        .gridDimZ = params->gridDimZ,
        .blockDimX = params->blockDimX,
        .blockDimY = params->blockDimY,
        .blockDimZ = params->blockDimZ,
        .sharedMemBytes = params->sharedMemBytes,
        .kernelParams = params->kernelParams,
        .extra = params->extra,
        .kern = params->kern,
        .ctx = params->ctx,
    };
    return sim_kernel_set(&node->what, &kernel);
}

static CUresult describe_fill(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v2 *params)
{
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = params->dst,
        .pitch = params->pitch,
        .value = params->value,
        .elementSize = params->elementSize,
        .width = params->width,
        .height = params->height,
    };
    return sim_fill_describe(&node->what, &fill, params->ctx);
}

static CUresult describe_host(CUgraphNode node, const CUDA_HOST_NODE_PARAMS_v2 *params)
{
    const CUDA_HOST_NODE_PARAMS host = {.fn = params->fn, .userData = params->userData};
    return sim_host_describe(&node->what, &host);
}

static CUresult describe_event(CUgraphNode node, CUevent event)
{
    node->event = event;
    return sim_slab_has(&sim_order.events, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult describe_allocation(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params)
{
    CUresult result = sim_allocation_add(node, sim_device_of(params->poolProps.location.id), params->bytesize);
    if (result == CUDA_SUCCESS)
        params->dptr = node->memory->block.address;
    return result;
}

static CUresult describe(CUgraphNode node, CUgraphNodeParams *params)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return describe_kernel(node, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sim_copy_describe(&node->what, &node->copy, &params->memcpy.copyParams, params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return describe_fill(node, &params->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return describe_host(node, &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return sim_node_embed(node, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return describe_event(node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return describe_event(node, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return describe_allocation(node, &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sim_free_add(node, params->free.dptr);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return sim_branches_add(node, &params->conditional);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* What is asked before the dependencies are. */
static CUresult params_good(CUgraph graph, const CUgraphNodeParams *params)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE ? sim_child_good(params->graph.graph)
                                                                               : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return sim_allocation_good(graph, &(CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = params->alloc.poolProps,
                                                                        .bytesize = params->alloc.bytesize});
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        graph->allocates = true;
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

static bool reserved_good(const CUgraphNodeParams *params)
{
    return params->reserved0[0] == 0 && params->reserved0[1] == 0 && params->reserved0[2] == 0 &&
           params->reserved2 == 0;
}

static CUresult add_node(const char *entry, CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
                         const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !params || !reserved_good(params) || !sim_graph_valid(graph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    result = params_good(graph, params);
    if (result == CUDA_SUCCESS)
        result = sim_dependencies_check(graph, after, count);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS && data; i++)
        if (data[i].type != CU_GRAPH_DEPENDENCY_TYPE_DEFAULT || data[i].from_port != 0 || data[i].to_port != 0)
            result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    CUgraphNode node = sim_node_create(graph, params->type, after, count);
    if (!node)
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    node->made = sim_check_made();
    result = describe(node, params);
    if (result == CUDA_SUCCESS)
        *out = node;
    else
        sim_node_free(node);
    return sim_leave(result);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    return add_node(__func__, phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    return add_node(__func__, phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}
