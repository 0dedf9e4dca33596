/* Telling the stack's layers what happens to captures and graphs. */
#include "runtime/graph_events.h"

#include "core/stack/calls.h"

static void tell(const strata_capture_pool *pool, strata_graph_event *event)
{
    strata_runtime *runtime = pool->runtime;
    strata_captures_lock(&runtime->captures);
    event->bytes = pool->ranges.reserved;
    strata_captures_unlock(&runtime->captures);
    strata_tell_graph_event(runtime->top, event);
}

void strata_graph_tell(const strata_graph *graph, strata_graph_event_kind kind, CUstream stream, strata_status status)
{
    if (graph->runtime->hears_graphs)
        tell(graph->pool,
             &(strata_graph_event){
                 .kind = kind, .status = status, .stream = stream, .name = graph->name, .nodes = graph->nodes});
}

void strata_capture_tell_failure(const strata_capture *capture, strata_status status)
{
    if (capture->runtime->hears_graphs)
        tell(capture->pool, &(strata_graph_event){.kind = STRATA_GRAPH_EVENT_CAPTURE,
                                                  .status = status,
                                                  .stream = capture->stream,
                                                  .name = capture->name});
}
