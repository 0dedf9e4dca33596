/* Events. The event holds its last record, an operation of the stream. A wait takes its edge from that operation: later
 * records and the event's end do not affect it. */
#include "order/order.h"

void sim_event_strip(CUevent event)
{
    sim_op_drop(event->op);
    sim_nodes_free(&event->captured);
    event->op = NULL;
    sim_order.ended_events += !event->ended;
    event->ended = true;
}

void sim_event_free(CUevent event)
{
    sim_event_strip(event);
    sim_order.ended_events--;
    sim_slab_give(&sim_order.events, event);
}

/* Makes the handle of one event free that ended with a primary context, once that has begun anew: a real driver may
 * give it to a new object, so that a call with the old event sees another one. */
static void free_one_ended(const sim_context *context)
{
    CUevent event = NULL;
    while (sim_order.ended_events && (event = sim_slab_next(&sim_order.events, event)) != NULL)
        if (event->ended && event->context == context) {
            sim_event_free(event);
            return;
        }
}

CUresult sim_event_create(sim_context *context, CUevent *event, unsigned flags)
{
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    bool shared_and_timed = (flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING);
    if (!event || (flags & ~known) != 0 || shared_and_timed)
        return CUDA_ERROR_INVALID_VALUE;
    free_one_ended(context);
    CUevent made = sim_slab_take(&sim_order.events);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = context;
    made->flags = flags;
    *event = made;
    return CUDA_SUCCESS;
}

CUresult sim_event_check(CUevent event)
{
    if (!sim_slab_has(&sim_order.events, event))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!event->ended)
        return CUDA_SUCCESS;
    return event->context->active ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_event_record(CUevent event, CUstream stream, unsigned flags)
{
    sim_queue *queue;
    if (!sim_slab_has(&sim_order.events, event))
        return sim_stream_has_ended(stream) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_queue_for_work(stream, &queue);
    if (result == CUDA_SUCCESS)
        result = sim_event_check(event);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->context != queue->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (queue->capture)
        return sim_hooks.graph->capture_record(queue, event, flags);
    if (flags == CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_ILLEGAL_STATE; /* only in a capture */
    if (sim_fault_drops(STRATA_SIM_EDGE_EVENT_RECORD))
        return CUDA_SUCCESS;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_MARK, 0);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const sim_point *last = event->op ? &event->op->at : NULL;
    sim_edge_counted(last && last->component == op->at.component && last->position == op->at.position);
    sim_op_drop(event->op);
    event->op = sim_op_hold(op);
    event->polls = 0;
    event->capture = 0;
    sim_nodes_free(&event->captured);
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

/* For a call that a program may repeat until the event's work is done: lets that work run after a few refusals. */
static bool poll_done(CUevent event)
{
    if (!sim_op_done(event->op) && event->polls >= SIM_POLLS && sim.phase == SIM_RUNNING) {
        sim_op_need(event->op);
        sim_run_chosen();
    }
    if (sim_op_done(event->op))
        return true;
    event->polls++;
    return false;
}

static void join_done(CUevent event)
{
    if (event->op)
        sim_host_join(&event->op->at);
}

CUresult sim_event_query(CUevent event)
{
    if (sim_fault_drops(STRATA_SIM_EDGE_EVENT_QUERY))
        return event->context->device->poison;
    if (!poll_done(event))
        return CUDA_ERROR_NOT_READY;
    sim_order.joined = false;
    join_done(event);
    sim_edge_counted(!sim_order.joined);
    return event->context->device->poison;
}

/* Holds the record that it waits for: the event may be recorded again or destroyed meanwhile. */
CUresult sim_event_wait(CUevent event)
{
    sim_context *context = event->context;
    sim_op *op = event->op;
    if (!op || sim_fault_drops(STRATA_SIM_EDGE_EVENT_SYNCHRONIZE))
        return sim_op_wait(context, NULL);
    sim_op_hold(op);
    CUresult result = sim_op_wait(context, op);
    sim_edge_counted(!sim_order.joined);
    if (result == CUDA_SUCCESS)
        sim_hooks.memory->seen(context->device, &op->at);
    sim_op_drop(op);
    return result;
}

CUresult sim_event_elapsed(float *milliseconds, CUevent start, CUevent end)
{
    if (!milliseconds)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_event_check(start);
    if (result == CUDA_SUCCESS)
        result = sim_event_check(end);
    if (result != CUDA_SUCCESS)
        return result;
    if (start->capture || end->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (start->context->device->poison != CUDA_SUCCESS)
        return start->context->device->poison;
    bool untimed = ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0;
    if (untimed || !start->op || !end->op || start->context->device != end->context->device)
        return CUDA_ERROR_INVALID_HANDLE;
    bool started = poll_done(start);
    bool ended = poll_done(end);
    if (!started || !ended)
        return CUDA_ERROR_NOT_READY;
    if (start->context->device->poison != CUDA_SUCCESS)
        return start->context->device->poison;
    join_done(start);
    join_done(end);
    double nanoseconds = (double)end->op->finished_at - (double)start->op->finished_at;
    *milliseconds = (float)(nanoseconds * 1e-6);
    return CUDA_SUCCESS;
}
