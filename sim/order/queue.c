/* The queues behind streams, and implicit order: within a stream, and between the legacy and the blocking streams of a
 * context. */
#include "order/order.h"
#include <stdlib.h>

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

/* Keeps the work of a queue that goes, for later waits for the whole context. */
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

/* Orders the op after the other queue's work. True if that order is new to the queue. */
static bool come_after(sim_queue *queue, sim_op *op, const sim_queue *other)
{
    sim_point work = sim_queue_point(other);
    sim_op_await(op, other->tail);
    return sim_clock_position(queue->knows, work.slot, work.component) < work.position && sim_queue_join(queue, &work);
}

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
