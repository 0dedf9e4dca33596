/* Entry points: streams. */
#include "driver/enter.h"

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_stream_create(context, phStream, flags, priority));
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    sim_called_as(__func__);
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

/* Remaining work continues. */
CUresult cuStreamDestroy_v2(CUstream hStream)
{
    if (!hStream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_stream_destroy(hStream));
}

CUresult cuStreamDestroy(CUstream hStream)
{
    return cuStreamDestroy_v2(hStream);
}

/* Enters a call about a stream. After a failure the lock is not held. */
static CUresult enter(const char *entry, CUstream stream, sim_queue **queue)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_queue_of(stream, queue);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : sim_leave(result);
}

/* As above, for a call that adds work. */
static CUresult enter_work(const char *entry, CUstream stream, sim_queue **queue)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_queue_for_work(stream, queue);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : sim_leave(result);
}

static CUresult enter_query(const char *entry, CUstream stream, sim_queue **queue)
{
    CUresult result = sim_enter_query_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_queue_of(stream, queue);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : sim_leave(result);
}

CUresult cuStreamQuery(CUstream hStream)
{
    sim_queue *queue;
    CUresult result = enter_query(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_stream_guard_wait(queue);
    return sim_leave(result == CUDA_SUCCESS ? sim_stream_query(queue) : result);
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    sim_queue *queue;
    CUresult result = enter(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_stream_guard_wait(queue);
    if (result == CUDA_SUCCESS && !sim_fault_drops(STRATA_SIM_EDGE_STREAM_SYNCHRONIZE)) {
        result = sim_queue_wait(queue);
        sim_edge_counted(!sim_order.joined);
    }
    return sim_leave(result);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    sim_queue *queue;
    CUresult result = enter_query(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_guard_queue(queue);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if (!flags)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = queue->flags;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    sim_queue *queue;
    CUresult result = enter_query(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    if (!priority)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *priority = queue->priority;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    sim_queue *queue;
    CUresult result = enter_query(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_guard_queue(queue);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if (!streamId)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *streamId = queue->component->uid;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    sim_queue *queue;
    CUresult result = enter_query(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pctx)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *pctx = queue->context;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    sim_queue *queue;
    CUresult result = enter_query(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_guard_queue(queue);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *device = queue->context->device->ordinal;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    sim_queue *queue;
    CUresult result = enter_work(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_stream_wait_event(queue, hEvent, Flags));
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    sim_queue *queue;
    CUresult result = enter_work(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_stream_launch_host(queue, fn, NULL, hStream, userData));
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    sim_queue *queue;
    CUresult result = enter(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_guard_queue(queue);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    bool good = callback && flags == 0;
    return sim_leave(good ? sim_stream_launch_host(queue, NULL, callback, hStream, userData)
                          : CUDA_ERROR_INVALID_VALUE);
}
