/* Entry points: executable graphs. */
#include "driver/enter.h"

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    CUgraphNode wrong;
    return sim_leave(sim_exec_instantiate(phGraphExec, hGraph, flags, &wrong));
}

/* The error text is empty: no node to name. */
CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                               size_t bufferSize)
{
    if (phErrorNode)
        *phErrorNode = NULL;
    if (logBuffer && bufferSize > 0)
        logBuffer[0] = '\0';
    sim_called_as("cuGraphInstantiate");
    return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                            size_t bufferSize)
{
    return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!instantiateParams)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    unsigned long long flags = instantiateParams->flags;
    unsigned long long loads = flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    CUgraphExec made = NULL;
    result = sim_exec_instantiate(phGraphExec ? &made : NULL, hGraph, flags & ~loads, &instantiateParams->hErrNode_out);
    const CUgraphNode wrong = instantiateParams->hErrNode_out;
    if (wrong)
        instantiateParams->result_out =
            wrong->graph == hGraph ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE : sim_body_fault(wrong);
    else if (result != CUDA_SUCCESS && sim_graph_valid(hGraph) && !sim_conditions_used(hGraph))
        instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    if (result == CUDA_SUCCESS && loads) {
        result = sim_exec_upload(instantiateParams->hUploadStream);
        if (result != CUDA_SUCCESS)
            sim_exec_free(made);
    }
    if (result == CUDA_SUCCESS) {
        instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
        *phGraphExec = made;
    }
    return sim_leave(result);
}

/* As in the real driver, the priority flag is accepted, not kept. */
CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags || !sim_exec_valid(hGraphExec))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = hGraphExec->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_exec_valid(hGraphExec) ? sim_exec_upload(hStream) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_exec_valid(hGraphExec))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_queue *queue;
    result = sim_queue_of(hStream, &queue);
    if (result == CUDA_SUCCESS)
        result = sim_capture_guard_queue(queue);
    return sim_leave(result == CUDA_SUCCESS ? sim_exec_launch(hGraphExec, queue) : result);
}

/* Launched work continues. */
CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_exec_valid(hGraphExec))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_exec_free(hGraphExec);
    return sim_leave(CUDA_SUCCESS);
}
