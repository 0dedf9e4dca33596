/* Streams as the driver API has them. */
#include "order/order.h"

static int clamp_priority(int priority)
{
    if (priority > 0)
        return 0;
    return priority < SIM_GREATEST_PRIORITY ? SIM_GREATEST_PRIORITY : priority;
}

CUresult sim_stream_create(sim_context *context, CUstream *stream, unsigned flags, int priority)
{
    if (!stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream made = sim_slab_take(&sim_order.streams);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->queue = sim_queue_open(context, SIM_QUEUE_CREATED, flags, clamp_priority(priority));
    if (!made->queue) {
        sim_slab_give(&sim_order.streams, made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult sim_stream_destroy(CUstream stream)
{
    if (!sim_slab_has(&sim_order.streams, stream))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!stream->queue)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = sim_context_check(stream->queue->context);
    if (result == CUDA_SUCCESS) {
        sim_queue_close(stream->queue);
        sim_slab_give(&sim_order.streams, stream);
    }
    return result;
}

static bool busy(const sim_queue *queue, bool force)
{
    if (queue->tail && force)
        sim_op_need(queue->tail);
    return queue->tail != NULL;
}

/* Whether the stream is busy; the legacy stream is while any blocking stream is. `force`: lets the work run. */
static bool any_busy(sim_queue *queue, bool force)
{
    if (queue->kind != SIM_QUEUE_LEGACY)
        return busy(queue, force);
    bool any = false;
    for (sim_queue *other = queue->context->queues; other; other = other->next)
        any = (other->blocking && busy(other, force)) || any;
    return any;
}

CUresult sim_stream_query(sim_queue *queue)
{
    if (sim_fault_drops(STRATA_SIM_EDGE_STREAM_QUERY))
        return queue->context->device->poison;
    bool force = queue->polls >= SIM_POLLS && sim.phase == SIM_RUNNING;
    if (any_busy(queue, force) && force)
        sim_run_chosen();
    if (!any_busy(queue, false)) {
        queue->polls = 0;
        sim_order.joined = false;
        sim_queue_join_done(queue);
        sim_edge_counted(!sim_order.joined);
        return queue->context->device->poison;
    }
    queue->polls++;
    return CUDA_ERROR_NOT_READY;
}

/* Checks the captures for a call that asks for the stream's progress. */
CUresult sim_stream_guard_wait(sim_queue *queue)
{
    CUresult result = sim_capture_guard_queue(queue);
    return result == CUDA_SUCCESS ? sim_capture_guard() : result;
}

/* Waits for the event's last record as it is now. */
CUresult sim_stream_wait_event(sim_queue *queue, CUevent event, unsigned flags)
{
    if (flags != CU_EVENT_WAIT_DEFAULT && flags != CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_event_check(event);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags == CU_EVENT_WAIT_EXTERNAL && !queue->capture)
        return CUDA_ERROR_ILLEGAL_STATE; /* only in a capture */
    if (queue->capture || event->capture)
        return sim_hooks.graph->capture_wait(queue, event, flags);
    if (!event->op || sim_fault_drops(STRATA_SIM_EDGE_EVENT_WAIT))
        return CUDA_SUCCESS;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_MARK, 1);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_order.joined = false;
    sim_op_depend(op, event->op);
    sim_edge_counted(!sim_order.joined);
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

CUresult sim_stream_launch_host(sim_queue *queue, CUhostFn function, CUstreamCallback callback, CUstream stream,
                                void *data)
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

static CUresult default_queue(CUstream stream, sim_queue **queue)
{
    sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return CUDA_ERROR_INVALID_HANDLE; /* the default streams ended with it */
    if (result != CUDA_SUCCESS)
        return result;
    *queue = stream == CU_STREAM_PER_THREAD ? sim_thread_queue(context) : context->legacy;
    return *queue ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sim_stream_has_ended(CUstream stream)
{
    return sim_slab_has(&sim_order.streams, stream) && !stream->queue;
}

CUresult sim_queue_to_ask(CUstream stream, sim_queue **queue)
{
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return default_queue(stream, queue);
    /* The real driver crashes on the handle of a destroyed stream. */
    if (!sim_slab_has(&sim_order.streams, stream))
        return CUDA_ERROR_INVALID_HANDLE;
    *queue = stream->queue;
    if (!*queue)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_context_check((*queue)->context);
}

CUresult sim_queue_of(CUstream stream, sim_queue **queue)
{
    CUresult result = sim_queue_to_ask(stream, queue);
    bool legacy = result == CUDA_SUCCESS && (*queue)->kind == SIM_QUEUE_LEGACY;
    return legacy ? sim_capture_guard_legacy((*queue)->context) : result;
}

CUresult sim_queue_for_work(CUstream stream, sim_queue **queue)
{
    CUresult result = sim_queue_of(stream, queue);
    return result == CUDA_SUCCESS ? sim_capture_check(*queue) : result;
}
