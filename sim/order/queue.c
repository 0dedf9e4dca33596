/* The queues behind streams, and the order that streams have without being told: within a stream, and between the
 * legacy stream and every stream of its context that was not created non-blocking. */
#include "order/order.h"
#include <stdlib.h>
#include <string.h>

sim_queue *sim_queue_open(sim_context *context, sim_queue_kind kind, unsigned flags, int priority)
{
    sim_queue *queue = calloc(1, sizeof *queue);
    sim_component *component = queue ? sim_component_open() : NULL;
    if (!component) {
        free(queue);
        return NULL;
    }
    queue->kind = kind;
    queue->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    queue->context = context;
    queue->component = component;
    component->queue = queue;
    queue->flags = flags;
    queue->priority = priority;
    queue->next = context->queues;
    if (queue->next)
        queue->next->previous = queue;
    context->queues = queue;
    context->queue_count++;
    return queue;
}

/* What comes after all work of the context still comes after the work of a stream that is gone. */
static void remember_work(sim_queue *queue)
{
    sim_point point = sim_queue_point(queue);
    sim_clock_join(&queue->context->ended, 0, &point);
    if (queue->blocking)
        sim_clock_join(&queue->context->ended_blocking, 0, &point);
}

void sim_queue_free(sim_queue *queue)
{
    sim_context *context = queue->context;
    remember_work(queue);
    sim_hooks.graph->queue_gone(queue);
    sim_hooks.memory->queue_gone(queue);
    if (queue->previous)
        queue->previous->next = queue->next;
    else
        context->queues = queue->next;
    if (queue->next)
        queue->next->previous = queue->previous;
    context->queue_count--;
    sim_clock_drop(queue->knows);
    queue->component->queue = NULL;
    sim_component_drop(queue->component);
    free(queue);
}

void sim_queue_close(sim_queue *queue)
{
    queue->closed = true;
    sim_hooks.graph->queue_gone(queue);
    if (!queue->tail)
        sim_queue_free(queue);
}

void sim_queue_finished(sim_queue *queue, sim_op *op)
{
    if (queue->tail != op)
        return;
    queue->tail = NULL;
    queue->polls = 0;
    if (queue->closed)
        sim_queue_free(queue);
}

size_t sim_queue_order_room(const sim_queue *queue)
{
    return queue->kind == SIM_QUEUE_LEGACY ? queue->context->queue_count + 1 : 2;
}

/* Whether that is new. */
static bool come_after(sim_queue *queue, sim_op *op, const sim_queue *other)
{
    sim_point work = sim_queue_point(other);
    sim_op_await(op, other->tail);
    return sim_clock_position(queue->knows, work.slot, work.component) < work.position && sim_queue_join(queue, &work);
}

/* A mark by which the stream comes to know nothing new stands for the work before it: it gets no position of its own.
 */
void sim_queue_order(sim_queue *queue, sim_op *op)
{
    sim_context *context = queue->context;
    bool gained = false;
    sim_op_await(op, queue->tail);
    if (queue->kind == SIM_QUEUE_LEGACY) {
        for (sim_queue *other = context->queues; other; other = other->next)
            if (other != queue && other->blocking)
                gained = come_after(queue, op, other) || gained;
        sim_point ended = {.knows = context->ended_blocking};
        gained = sim_queue_join(queue, &ended) || gained;
    } else if (queue->blocking) {
        gained = come_after(queue, op, context->legacy);
    }
    op->at = (sim_point){.slot = queue->component->slot, .component = queue->component->uid};
    op->at.position = op->kind == SIM_OP_MARK && !gained ? queue->component->last : ++queue->component->last;
    op->fault = sim_fault_operation(queue);
    queue->tail = op;
}

static CUresult default_queue(CUstream stream, sim_queue **queue)
{
    sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *queue = stream == CU_STREAM_PER_THREAD ? sim_thread_queue(context) : context->legacy;
    return *queue ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_queue_to_ask(CUstream stream, sim_queue **queue)
{
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return default_queue(stream, queue);
    /* The one kindness of this driver: the real one crashes on the handle of a destroyed stream. */
    if (!sim_slab_has(&sim_order.streams, stream))
        return CUDA_ERROR_INVALID_HANDLE;
    *queue = stream->queue;
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

/* An operation that comes after all work of the context, or of its blocking streams. NULL without memory. */
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

/* With `teach` the host comes to know of it. */
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

/* The stream may have got more work, or be gone, when the wait is over. */
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
