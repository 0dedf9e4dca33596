/* Streams, as the driver's interface has them. */
#include "sim.h"

static int clamp_priority(int priority)
{
    if (priority > 0)
        return 0;
    return priority < SIM_GREATEST_PRIORITY ? SIM_GREATEST_PRIORITY : priority;
}

static CUresult create(sim_context *context, CUstream *stream, unsigned flags, int priority)
{
    if (!stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream made = sim_slab_take(&sim.streams);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->queue = sim_queue_open(context, SIM_QUEUE_CREATED, flags, clamp_priority(priority));
    if (!made->queue) {
        sim_slab_give(&sim.streams, made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(create(context, phStream, flags, priority));
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    sim_called_as(__func__);
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

static CUresult destroy(CUstream stream)
{
    if (!sim_slab_has(&sim.streams, stream))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_context_check(stream->queue->context);
    if (result == CUDA_SUCCESS) {
        sim_queue_close(stream->queue);
        sim_slab_give(&sim.streams, stream);
    }
    return result;
}

/* Work that the stream still has goes on; only the handle is gone. */
CUresult cuStreamDestroy_v2(CUstream hStream)
{
    if (!hStream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(destroy(hStream));
}

CUresult cuStreamDestroy(CUstream hStream)
{
    return cuStreamDestroy_v2(hStream);
}

/* Begins a call about a stream. As with sim_enter, the lock is not held after a failure. */
static CUresult enter(const char *entry, CUstream stream, sim_queue **queue)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_queue_of(stream, queue);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : sim_leave(result);
}

/* The same for a call that gives the stream work. */
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

static bool busy(const sim_queue *queue, bool force)
{
    if (queue->tail && force)
        sim_op_need(queue->tail);
    return queue->tail != NULL;
}

/* The legacy stream has work while any stream has that it is ordered after. */
static bool any_busy(sim_queue *queue, bool force)
{
    if (queue->kind != SIM_QUEUE_LEGACY)
        return busy(queue, force);
    bool any = false;
    for (sim_queue *other = queue->context->queues; other; other = other->next)
        any = (other->blocking && busy(other, force)) || any;
    return any;
}

static CUresult query(sim_queue *queue)
{
    if (sim_fault_drops(STRATA_SIM_EDGE_STREAM_QUERY))
        return queue->context->device->poison;
    bool force = queue->polls >= SIM_POLLS && sim.phase == SIM_RUNNING;
    if (any_busy(queue, force) && force)
        sim_run_chosen();
    if (!any_busy(queue, false)) {
        queue->polls = 0;
        sim.joined = false;
        sim_queue_join_done(queue);
        sim_edge_counted(!sim.joined);
        return queue->context->device->poison;
    }
    queue->polls++;
    return CUDA_ERROR_NOT_READY;
}

/* For a call that asks how far the stream is. */
static CUresult guard_wait(sim_queue *queue)
{
    CUresult result = sim_capture_guard_queue(queue);
    return result == CUDA_SUCCESS ? sim_capture_guard() : result;
}

CUresult cuStreamQuery(CUstream hStream)
{
    sim_queue *queue;
    CUresult result = enter_query(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    result = guard_wait(queue);
    return sim_leave(result == CUDA_SUCCESS ? query(queue) : result);
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    sim_queue *queue;
    CUresult result = enter(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    result = guard_wait(queue);
    if (result == CUDA_SUCCESS && !sim_fault_drops(STRATA_SIM_EDGE_STREAM_SYNCHRONIZE)) {
        result = sim_queue_wait(queue);
        sim_edge_counted(!sim.joined);
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

/* Submits a wait for the event's last record as it is now; what becomes of the event later does not matter. */
static CUresult wait_event(sim_queue *queue, CUevent event, unsigned flags)
{
    if (flags != CU_EVENT_WAIT_DEFAULT && flags != CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_slab_has(&sim.events, event))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags == CU_EVENT_WAIT_EXTERNAL && !queue->capture)
        return CUDA_ERROR_ILLEGAL_STATE; /* good only in a capture */
    if (queue->capture || event->capture)
        return sim_capture_wait(queue, event, flags);
    if (!event->op || sim_fault_drops(STRATA_SIM_EDGE_EVENT_WAIT))
        return CUDA_SUCCESS;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_MARK, 1);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim.joined = false;
    sim_op_depend(op, event->op);
    sim_edge_counted(!sim.joined);
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    sim_queue *queue;
    CUresult result = enter_work(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(wait_event(queue, hEvent, Flags));
}

static CUresult launch_host(sim_queue *queue, CUhostFn function, CUstreamCallback callback, CUstream stream, void *data)
{
    CUresult result = sim_host_thread_start();
    if (result != CUDA_SUCCESS)
        return result;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_HOST, 0);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->work.host.function = function;
    op->work.host.callback = callback;
    op->work.host.stream = stream;
    op->work.host.data = data;
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    sim_queue *queue;
    CUresult result = enter_work(__func__, hStream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(launch_host(queue, fn, NULL, hStream, userData));
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
    return sim_leave(good ? launch_host(queue, NULL, callback, hStream, userData) : CUDA_ERROR_INVALID_VALUE);
}
