/* What can be asked about captures. No capture can begin, so the answer is always that there is none. */
#include "sim.h"

static CUresult check(CUstream stream, const void *status)
{
    struct sim_queue *queue;
    CUresult result = sim_enter_query();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = sim_queue_of(stream, &queue);
    if (result == CUDA_SUCCESS && !status) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return sim_leave(result);
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    CUresult result = check(hStream, captureStatus);
    if (result == CUDA_SUCCESS) {
        *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return result;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
    (void)id_out; /* only written while capturing, like everything below */
    return cuStreamIsCapturing(hStream, captureStatus_out);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                   CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                   size_t *numDependencies_out)
{
    (void)id_out;
    (void)graph_out;
    (void)dependencies_out;
    (void)numDependencies_out;
    return cuStreamIsCapturing(hStream, captureStatus_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                   CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    (void)id_out;
    (void)graph_out;
    (void)dependencies_out;
    (void)edgeData_out;
    (void)numDependencies_out;
    return cuStreamIsCapturing(hStream, captureStatus_out);
}

/* Any number is a mode, and comes back with the next exchange: the driver does not look at it here. */
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct sim_thread *thread = sim_thread_self();
    if (!thread) {
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (!mode) {
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    }
    CUstreamCaptureMode before = thread->mode;
    thread->mode = *mode;
    *mode = before;
    return sim_leave(CUDA_SUCCESS);
}
