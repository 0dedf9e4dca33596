/* Graphs of requests, as programs begin, end, launch and release them. */
#include "service/graph.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/device_state.h"

#include <string.h>

/* ---- life ---- */

/* Errors: FORKED. */
static strata_status check(const strata_service_graph *graph, const char *call)
{
    return graph ? service_check_fork(graph->forks)
                 : strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: graph is NULL", call);
}

strata_status strata_service_graph_begin(strata_service *service, const char *name, strata_service_graph **out)
{
    const char *own = name ? name : "graph";
    if (out)
        *out = NULL;
    strata_status status = service_check(service, "strata_service_graph_begin");
    if (status == STRATA_SUCCESS && !out)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_graph_begin: out is NULL");
    if (status == STRATA_SUCCESS)
        status = service_check_name(own, SERVICE_NAME_LIMIT, "a graph");
    if (status == STRATA_SUCCESS)
        status = service_check_open(service);
    if (status != STRATA_SUCCESS)
        return status;
    strata_service_graph *graph = strata_host_zalloc(sizeof *graph);
    char *copy = graph ? strata_host_zalloc(strlen(own) + 1) : NULL;
    if (!copy) {
        strata_host_free(graph);
        return strata_fail_host_memory("a graph of requests");
    }
    graph->service = service;
    graph->forks = service->forks;
    graph->drop = service_request_drop;
    graph->name = strcpy(copy, own);
    atomic_init(&graph->holders, 1);
    strata_lock_init(&graph->lock, STRATA_RANK_SERVICE_GRAPH);
    *out = graph;
    return STRATA_SUCCESS;
}

void strata_service_graph_release(strata_service_graph *graph)
{
    if (graph && service_check_fork(graph->forks) == STRATA_SUCCESS)
        service_graph_unhold(graph);
}

/* ---- the end ---- */

static strata_status make(strata_service_graph *graph, service_request_kind kind, const strata_send_options *send,
                          const char *call, strata_future **out)
{
    const strata_status status = service_request_make(graph->service, kind, send, call, out);
    if (status != STRATA_SUCCESS)
        return status;
    service_graph_hold(graph);
    (*out)->recorded_graph = graph;
    return STRATA_SUCCESS;
}

/* Under the lock. */
static bool may_end(const strata_service_graph *graph)
{
    return !graph->ended && graph->count;
}

/* Raises why the recording cannot end. Takes the lock. */
static strata_status refuse_ending(strata_service_graph *graph)
{
    strata_lock_take(&graph->lock);
    const bool ended = graph->ended;
    strata_lock_release(&graph->lock);
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_graph_end: %s graph \"%s\"%s",
                       ended ? "the recording of" : "nothing is recorded in", graph->name,
                       ended ? " was ended before" : ": name it in the send options of requests first");
}

/* Submits the request that ends the recording: it has ended once that is in the queue, and not if it is refused. */
static strata_status end_recording(strata_service_graph *graph, strata_future *request, strata_future **out)
{
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&graph->lock);
    const bool may = may_end(graph);
    strata_status status = STRATA_SUCCESS;
    if (may) {
        atomic_store_explicit(&graph->generation, strata_device_state_generation(graph->service->state),
                              memory_order_relaxed);
        status = service_request_submit(request, out);
        graph->ended = status == STRATA_SUCCESS;
    }
    strata_lock_release(&graph->lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (may)
        return status;
    service_request_drop(request);
    return refuse_ending(graph);
}

strata_status strata_service_graph_end(strata_service_graph *graph, const strata_send_options *send,
                                       strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = check(graph, "strata_service_graph_end");
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&graph->lock);
    const bool may = may_end(graph);
    strata_lock_release(&graph->lock);
    if (!may)
        return refuse_ending(graph);
    status = make(graph, SERVICE_MAKE_GRAPH, send, "strata_service_graph_end", &request);
    return status == STRATA_SUCCESS ? end_recording(graph, request, out) : status;
}

/* ---- launching ---- */

/* Checks what is known before the service's thread has the launch. */
static strata_status check_launch(strata_service_graph *graph)
{
    strata_lock_take(&graph->lock);
    const bool ended = graph->ended;
    strata_lock_release(&graph->lock);
    if (!ended)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_service_graph_launch: graph \"%s\" is still recorded; end it first", graph->name);
    if (atomic_load_explicit(&graph->made, memory_order_acquire) != SERVICE_GRAPH_MADE)
        return STRATA_SUCCESS;
    return atomic_load_explicit(&graph->generation, memory_order_relaxed) ==
                   strata_device_state_generation(graph->service->state)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_STALE,
                             "graph \"%s\" is stale: the context was rebuilt since it was made; record it again",
                             graph->name);
}

strata_status strata_service_graph_launch(strata_service_graph *graph, const strata_send_options *send,
                                          strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = check(graph, "strata_service_graph_launch");
    if (status == STRATA_SUCCESS)
        status = check_launch(graph);
    if (status == STRATA_SUCCESS)
        status = make(graph, SERVICE_PLAY_GRAPH, send, "strata_service_graph_launch", &request);
    return status == STRATA_SUCCESS ? service_request_submit(request, out) : status;
}
