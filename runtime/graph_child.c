/* A graph that is launched in a capture becomes a node of it. */
#include "core/base/error.h"
#include "runtime/graphs.h"

static strata_status check_child(const strata_graph *graph, const strata_capture_front *front)
{
    strata_captures *captures = &graph->runtime->captures;
    strata_captures_lock(captures);
    const strata_capture *capture = strata_capture_find(graph->runtime, front->id);
    const bool shares = capture && strata_capture_took_memory(&graph->uses, capture->pool);
    strata_captures_unlock(captures);
    if (!capture || front->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return strata_fail(
            STRATA_ERROR_STREAM_CAPTURE,
            "strata_graph_launch: the stream is in a capture that was spoiled, or that other code began; "
            "launch the graph outside of captures");
    if (!strata_cu.GraphAddChildGraphNode)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "strata_graph_launch: the driver has no cuGraphAddChildGraphNode");
    if (shares)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_graph_launch: the graph has memory of the pool of this capture, in which the "
                           "capture's own blocks would lie; give one of them another pool");
    if (graph->conditionals)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "strata_graph_launch: the graph has %zu conditional node%s, and cannot be a part of another "
                           "one; capture its work there",
                           graph->conditionals, graph->conditionals == 1 ? "" : "s");
    return graph->changed ? strata_fail(STRATA_ERROR_UNSUPPORTED,
                                        "strata_graph_launch: nodes of the graph were changed one by one since its "
                                        "capture, which a part of another graph would not show; update it instead")
                          : STRATA_SUCCESS;
}

/* The whole keeps all that the part does, also pools of which it took nothing: these have recorded buffers. */
static strata_status keep_pools(const strata_graph *graph, CUstream stream)
{
    strata_runtime *runtime = graph->runtime;
    strata_capture_front front;
    strata_status status = strata_capture_ask(runtime->device, stream, &front);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    strata_captures_lock(&runtime->captures);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    status = capture ? strata_capture_check_closed(capture) : STRATA_SUCCESS;
    bool kept = capture && status == STRATA_SUCCESS &&
                (graph->pool == capture->pool || strata_capture_add_part(&capture->uses, graph->pool));
    for (size_t i = 0; i < graph->uses.part_count && kept; i++)
        kept = graph->uses.parts[i] == capture->pool || strata_capture_add_part(&capture->uses, graph->uses.parts[i]);
    strata_captures_unlock(&runtime->captures);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (status != STRATA_SUCCESS)
        return status;
    if (!capture)
        return strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture ended during a launch in it");
    return kept ? STRATA_SUCCESS : strata_fail_host_memory("a part of a capture");
}

static strata_status prepare(const strata_graph *graph, CUstream stream)
{
    strata_runtime *runtime = graph->runtime;
    strata_status status = keep_pools(graph, stream);
    for (size_t i = 0; i < graph->uses.ref_count && status == STRATA_SUCCESS; i++)
        strata_captured_hold(runtime, stream, graph->uses.refs[i], &status);
    for (size_t i = 0; i < graph->uses.count && status == STRATA_SUCCESS; i++) {
        const strata_capture_use *use = &graph->uses.items[i];
        if (use->access == STRATA_ACCESS_NONE)
            continue;
        if (!strata_captured_prepare_part(runtime, use, stream, &status))
            return strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture ended during a launch in it");
    }
    return status;
}

static void spoil(strata_runtime *runtime, cuuint64_t id, strata_status status)
{
    strata_captures_lock(&runtime->captures);
    strata_capture *capture = strata_capture_find(runtime, id);
    if (capture)
        strata_capture_fail(capture, status, "a graph that is a part of it could not be placed");
    strata_captures_unlock(&runtime->captures);
}

/* The stream's next work depends on the new node alone, which depends on what the stream's work would have. */
static strata_status add_node(const strata_graph *graph, CUstream stream)
{
    bool added = false;
    strata_capture_front front;
    strata_call_scope scope;
    CUgraphNode node;
    strata_device *device = graph->runtime->device;
    strata_status status = strata_capture_ask(device, stream, &front);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    const char *call = "cuGraphAddChildGraphNode";
    CUresult result = strata_cu.GraphAddChildGraphNode(&node, front.graph, front.nodes, front.count, graph->latest);
    if (result == CUDA_SUCCESS) {
        added = true;
        call = "cuStreamUpdateCaptureDependencies";
        result = strata_cu.StreamUpdateCaptureDependencies(stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    }
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    status = strata_fail_driver(result, call, "adding a graph of %zu nodes to a capture", graph->nodes);
    if (added) /* it stays there, and nothing would come after it */
        spoil(graph->runtime, front.id, status);
    return status;
}

/* A use that cannot be noted spoils the capture, whose end then gives no graph. */
static strata_status finish(const strata_graph *graph, CUstream stream)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < graph->uses.count; i++) {
        const strata_capture_use *use = &graph->uses.items[i];
        strata_status one = STRATA_SUCCESS;
        if (use->access != STRATA_ACCESS_NONE)
            strata_captured_finish(graph->runtime, &use->block, stream, use->access, &one);
        status = status == STRATA_SUCCESS ? one : status;
    }
    return status;
}

bool strata_captured_launch(strata_graph *graph, CUstream stream, strata_status *status)
{
    strata_capture_front front;
    *status = strata_capture_ask(graph->runtime->device, stream, &front);
    if (*status != STRATA_SUCCESS || front.status == CU_STREAM_CAPTURE_STATUS_NONE)
        return *status != STRATA_SUCCESS;
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&graph->pool->launches);
    *status = check_child(graph, &front);
    if (*status == STRATA_SUCCESS)
        *status = prepare(graph, stream);
    if (*status == STRATA_SUCCESS)
        *status = add_node(graph, stream);
    if (*status == STRATA_SUCCESS)
        *status = finish(graph, stream);
    strata_lock_release(&graph->pool->launches);
    strata_error_suppress_end(*status != STRATA_SUCCESS);
    return true;
}
