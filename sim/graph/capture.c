/* Begin, end and status of captures. Calls on a captured stream become nodes (capture_work.c). Another stream joins by
 * waiting for an event recorded in the capture, and must be joined to the first again before the end. */
#include "graph/graph.h"
#include <stdlib.h>

/* ---- streams of a capture ---- */

static void leave(sim_queue *queue)
{
    sim_queue **link = &queue->capture->queues;
    while (*link != queue)
        link = &(*link)->next_captured;
    *link = queue->next_captured;
    queue->next_captured = NULL;
    queue->capture = NULL;
    sim_nodes_free(&queue->captured);
}

/* Ends a capture: its streams are ordinary again. A failed one's graph is destroyed, even one that the user gave, but
 * not after a recapture, nor the body of a node. */
static void end(sim_capture *capture, bool failed)
{
    CUgraph graph = capture->graph;
    bool keeps_graph = capture->recapture != NULL || graph->embedded;
    while (capture->queues)
        leave(capture->queues);
    sim_recapture_end(capture);
    capture->graph->capture = NULL;
    if (capture->previous)
        capture->previous->next = capture->next;
    else
        sim_order.captures = capture->next;
    if (capture->next)
        capture->next->previous = capture->previous;
    free(capture);
    if (failed && !keeps_graph)
        sim_graph_free(graph);
}

void sim_capture_forget_graph(CUgraph graph)
{
    if (graph->capture)
        end(graph->capture, false);
}

/* Takes a queue that goes out of its capture, which ends if it began with this one. */
void sim_capture_forget_queue(sim_queue *queue)
{
    if (!queue->capture)
        return;
    if (queue->capture->origin == queue)
        end(queue->capture, true);
    else
        leave(queue);
}

/* ---- begin ---- */

CUresult sim_capture_check_begin(CUstream stream, CUstreamCaptureMode mode, sim_queue **queue)
{
    CUresult result = sim_queue_of(stream, queue);
    if (result != CUDA_SUCCESS)
        return result;
    if ((*queue)->kind == SIM_QUEUE_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    return (*queue)->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

CUresult sim_capture_begin(sim_queue *queue, CUgraph graph, CUstreamCaptureMode mode)
{
    const sim_thread *thread = sim_thread_self();
    sim_capture *capture = thread ? calloc(1, sizeof *capture) : NULL;
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->id = ++sim_graph.last_id;
    capture->graph = graph;
    capture->mode = mode;
    capture->thread = thread;
    capture->origin = queue;
    capture->next = sim_order.captures;
    if (capture->next)
        capture->next->previous = capture;
    sim_order.captures = capture;
    graph->capture = capture;
    sim_capture_join(capture, queue);
    return CUDA_SUCCESS;
}

CUresult sim_capture_begin_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *after, size_t count,
                                    CUstreamCaptureMode mode)
{
    sim_queue *queue;
    CUresult result = sim_capture_check_begin(stream, mode, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_graph_valid(graph) || (graph->embedded && !graph->body_of))
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    result = sim_dependencies_check(graph, after, count);
    if (result == CUDA_SUCCESS && !sim_nodes_reserve(&queue->captured, count))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = sim_capture_begin(queue, graph, mode);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        sim_nodes_add(&queue->captured, after[i]);
    return result;
}

/* ---- end ---- */

/* Whether all other streams' work comes before the first one's end. */
static bool joined(const sim_capture *capture)
{
    if (!sim_graph_mark(capture->graph, &capture->origin->captured))
        return false;
    for (const sim_queue *queue = capture->queues; queue; queue = queue->next_captured) {
        for (size_t i = 0; i < queue->captured.count; i++)
            if (queue->captured.at[i]->index == 0)
                return false;
    }
    return true;
}

/* On the legacy stream it counts as work there: a capture with a blocking stream ends invalid. */
CUresult sim_capture_end(CUstream stream, CUgraph *graph)
{
    sim_queue *queue;
    CUresult result = sim_queue_to_ask(stream, &queue);
    if (result == CUDA_SUCCESS && queue->kind == SIM_QUEUE_LEGACY)
        result = sim_capture_guard_legacy(queue->context);
    if (result != CUDA_SUCCESS)
        return result;
    sim_capture *capture = queue->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != queue) {
        sim_capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_thread_self())
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (capture->invalidated)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    else if (!sim_recapture_complete(capture))
        result = SIM_ERROR_GRAPH_RECAPTURE_FAILURE;
    CUgraph made = capture->graph;
    end(capture, result != CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && graph)
        *graph = made;
    return result;
}

/* ---- status ---- */

static CUstreamCaptureStatus status_of(const sim_queue *queue)
{
    if (!queue->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return queue->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Fails for the legacy stream beside a capture with a blocking stream, without invalidating that capture. */
CUresult sim_capture_ask(CUstream stream, CUstreamCaptureStatus *status, sim_queue **queue)
{
    CUresult result = sim_queue_to_ask(stream, queue);
    if (result != CUDA_SUCCESS)
        return result;
    if ((*queue)->kind == SIM_QUEUE_LEGACY && sim_capture_beside_legacy((*queue)->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(*queue);
    return CUDA_SUCCESS;
}

/* ---- dependencies ---- */

CUresult sim_capture_update(CUstream stream, const CUgraphNode *nodes, size_t count, unsigned flags)
{
    sim_queue *queue;
    CUresult result = sim_queue_to_ask(stream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    if (!queue->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (queue->capture->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES && flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_dependencies_check(queue->capture->graph, nodes, count);
    if (result != CUDA_SUCCESS)
        return result;
    size_t kept = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? 0 : queue->captured.count;
    if (!sim_nodes_reserve(&queue->captured, kept + count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    queue->captured.count = kept;
    for (size_t i = 0; i < count; i++)
        if (!sim_nodes_have(&queue->captured, nodes[i]))
            sim_nodes_add(&queue->captured, nodes[i]);
    return CUDA_SUCCESS;
}

void sim_captures_close(void)
{
    while (sim_order.captures)
        end(sim_order.captures, true);
}
