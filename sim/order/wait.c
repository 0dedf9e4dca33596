/* Waits of the host for streams and contexts. */
#include "order/order.h"

/* Makes a mark after all work of the context, or of its blocking streams. NULL without memory. */
static sim_op *join(sim_context *context, bool only_blocking)
{
    sim_op *op = sim_op_create(context, NULL, SIM_OP_MARK, context->queue_count);
    if (!op)
        return NULL;
    for (sim_queue *queue = context->queues; queue; queue = queue->next) {
        if (queue->blocking || !only_blocking) {
            sim_point work = sim_queue_point(queue);
            sim_op_await(op, queue->tail);
            sim_clock_join(&op->at.knows, 0, &work);
        }
    }
    sim_point ended = {.knows = only_blocking ? context->ended_blocking : context->ended};
    sim_clock_join(&op->at.knows, 0, &ended);
    return op;
}

static CUresult wait_for_join(sim_context *context, bool only_blocking, bool host_joins)
{
    sim_op *op = join(context, only_blocking);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_op_hold(op);
    sim_op_submit(op);
    CUresult result = host_joins ? sim_op_wait(context, op) : sim_op_wait_without_host_edge(context, op);
    if (result == CUDA_SUCCESS)
        sim_hooks.memory->seen(context->device, only_blocking ? &op->at : NULL);
    sim_op_drop(op);
    return result;
}

/* Waits for the work so far: the stream may get more, or end, meanwhile. */
CUresult sim_queue_wait(sim_queue *queue)
{
    sim_context *context = queue->context;
    if (queue->kind == SIM_QUEUE_LEGACY)
        return wait_for_join(context, true, true);
    sim_point work = sim_queue_point(queue);
    sim_clock_hold(work.knows);
    CUresult result = sim_op_wait(context, queue->tail);
    if (result == CUDA_SUCCESS) {
        sim_host_join(&work);
        sim_hooks.memory->seen(context->device, &work);
    }
    sim_clock_drop(work.knows);
    return result;
}

static void join_work(const sim_queue *queue)
{
    sim_point work = sim_queue_point(queue);
    sim_host_join(&work);
}

void sim_queue_join_done(sim_queue *queue)
{
    join_work(queue);
    if (queue->kind != SIM_QUEUE_LEGACY)
        return;
    for (sim_queue *other = queue->context->queues; other; other = other->next)
        if (other->blocking)
            join_work(other);
    sim_point ended = {.knows = queue->context->ended_blocking};
    sim_host_join(&ended);
}

CUresult sim_context_wait(sim_context *context)
{
    return wait_for_join(context, false, true);
}

CUresult sim_context_wait_without_host_edge(sim_context *context)
{
    return wait_for_join(context, false, false);
}

void sim_need_everything(void)
{
    for (sim_context *context = NULL; (context = sim_slab_next(&sim_order.contexts, context));) {
        for (sim_queue *queue = context->queues; queue; queue = queue->next)
            if (queue->tail)
                sim_op_need(queue->tail);
    }
}
