/* Entry points: updates of executable graphs. */
#include "driver/enter.h"

/* Enters a call that updates a node of an executable graph. After a failure the lock is not held. */
static CUresult enter(const char *entry, CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
                      sim_exec_node **found)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    *found = sim_exec_valid(exec) ? sim_exec_find_node(exec, node) : NULL;
    return *found && (*found)->type == type ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    sim_exec_node *node;
    CUresult result = enter(__func__, hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, &node);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op made;
    result = sim_fill_describe(&made, memsetParams, ctx);
    if (result == CUDA_SUCCESS && !sim_exec_compatible(&node->what, &made))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        node->what = made;
    return sim_leave(result);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
                                        CUcontext ctx)
{
    sim_exec_node *node;
    CUresult result = enter(__func__, hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &node);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op made;
    CUDA_MEMCPY3D kept;
    result = sim_copy_describe(&made, &kept, copyParams, ctx);
    if (result == CUDA_SUCCESS && !sim_exec_compatible(&node->what, &made))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        node->what = made;
        node->copy = kept;
    }
    return sim_leave(result);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    sim_exec_node *node;
    CUresult result = enter(__func__, hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, &node);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op made = {.kind = SIM_OP_MARK};
    result = sim_kernel_set(&made, nodeParams);
    if (result == CUDA_SUCCESS && !sim_exec_compatible(&node->what, &made)) {
        sim_work_free(&made);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        sim_work_free(&node->what);
        node->what = made;
    }
    return sim_leave(result);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (!nodeParams)
        return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, NULL);
    CUDA_KERNEL_NODE_PARAMS params = sim_kernel_newer(nodeParams);
    return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    sim_exec_node *node;
    CUresult result = enter(__func__, hGraphExec, hNode, CU_GRAPH_NODE_TYPE_HOST, &node);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_host_describe(&node->what, nodeParams));
}

static CUresult set_event(const char *entry, CUgraphExec exec, CUgraphNode handle, CUevent event, CUgraphNodeType type)
{
    sim_exec_node *node;
    CUresult result = enter(entry, exec, handle, type, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_slab_has(&sim_order.events, event))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    node->event = event;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    return set_event(__func__, hGraphExec, hNode, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    return set_event(__func__, hGraphExec, hNode, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

/* Only device work can be disabled. */
static CUresult enter_switch(const char *entry, CUgraphExec exec, CUgraphNode handle, sim_exec_node **node)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    *node = sim_exec_valid(exec) ? sim_exec_find_node(exec, handle) : NULL;
    bool device = *node && (*node)->type <= CU_GRAPH_NODE_TYPE_MEMSET;
    return device ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    sim_exec_node *node;
    CUresult result = enter_switch(__func__, hGraphExec, hNode, &node);
    if (result != CUDA_SUCCESS)
        return result;
    node->enabled = isEnabled != 0;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    sim_exec_node *node;
    CUresult result = enter_switch(__func__, hGraphExec, hNode, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (!isEnabled)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *isEnabled = node->enabled;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_exec_valid(hGraphExec) || !sim_graph_valid(hGraph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    result = sim_exec_update(hGraphExec, hGraph, &info);
    if (resultInfo && result != CUDA_ERROR_NOT_SUPPORTED)
        *resultInfo = info;
    return sim_leave(result);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    if (hErrorNode_out)
        *hErrorNode_out = info.errorNode;
    if (updateResult_out)
        *updateResult_out = info.result;
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_exec_valid(hGraphExec) || !sim_graph_valid(childGraph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (sim_graph_has_memory(childGraph))
        return sim_leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    const sim_exec_node *node = sim_exec_find_node(hGraphExec, hNode);
    CUgraphExecUpdateResultInfo info;
    bool good = node && node->type == CU_GRAPH_NODE_TYPE_GRAPH;
    return sim_leave(good ? sim_exec_replace_all(node->child, childGraph, &info) : CUDA_ERROR_INVALID_VALUE);
}
