/* Entry points: captures. */
#include "driver/enter.h"

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_queue *queue;
    result = sim_capture_check_begin(hStream, mode, &queue);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    CUgraph graph = sim_graph_create();
    result = graph ? sim_capture_begin(queue, graph, mode) : CUDA_ERROR_OUT_OF_MEMORY;
    if (graph && result != CUDA_SUCCESS)
        sim_graph_free(graph);
    return sim_leave(result);
}

CUresult cuStreamBeginCapture(CUstream hStream)
{
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Edge data may only be the default. */
CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode)
{
    (void)dependencyData;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_capture_begin_to_graph(hStream, hGraph, dependencies, numDependencies, mode));
}

CUresult cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                       sim_recapture_callback callbackFunc, void *userData)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_recapture_begin(hStream, hGraph, mode, callbackFunc, userData));
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (phGraph)
        *phGraph = NULL;
    return sim_leave(sim_capture_end(hStream, phGraph));
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    sim_queue *queue;
    CUresult result = sim_enter_query();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_capture_ask(hStream, captureStatus, &queue));
}

/* All but the status is written only while the capture is valid. Returned arrays are valid until the stream's next
 * call. */
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                   CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    static const CUgraphEdgeData plain[1];
    sim_queue *queue;
    CUresult result = sim_enter_query();
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_ask(hStream, captureStatus_out, &queue);
    if (result != CUDA_SUCCESS || *captureStatus_out != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return sim_leave(result);
    if (id_out)
        *id_out = queue->capture->id;
    if (graph_out)
        *graph_out = queue->capture->graph;
    if (dependencies_out)
        *dependencies_out = queue->captured.at;
    if (edgeData_out)
        *edgeData_out = plain;
    if (numDependencies_out)
        *numDependencies_out = queue->captured.count;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                   CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                   size_t *numDependencies_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                     numDependencies_out);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                              unsigned int flags)
{
    (void)dependencyData;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_capture_update(hStream, dependencies, numDependencies, flags));
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
                                           unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
}

/* Any number is accepted and returned by the next exchange, as in the driver. */
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_thread *thread = sim_thread_self();
    if (!thread)
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (!mode)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = thread->mode;
    thread->mode = *mode;
    *mode = before;
    return sim_leave(CUDA_SUCCESS);
}
