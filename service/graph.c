/* Graphs of requests: what is recorded, and what became of it. */
#include "service/graph.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/device_state.h"

#include <stdio.h>
#include <string.h>

/* ---- life ---- */

void service_graph_hold(strata_service_graph *graph)
{
    atomic_fetch_add_explicit(&graph->holders, 1, memory_order_relaxed);
}

static void drop_parts(strata_service_graph *graph)
{
    for (strata_future *part; (part = service_list_take(&graph->parts));)
        graph->drop(part);
}

void service_graph_unhold(strata_service_graph *graph)
{
    if (atomic_fetch_sub_explicit(&graph->holders, 1, memory_order_acq_rel) != 1)
        return;
    strata_error_suppress_begin(); /* errors of an end have no caller */
    drop_parts(graph);
    strata_graph_destroy(graph->local);
    if (graph->remote)
        graph->end_remote(graph->remote);
    strata_error_suppress_end(false);
    strata_lock_destroy(&graph->lock);
    strata_host_free(graph->name);
    strata_host_free(graph);
}

/* ---- recording ---- */

bool service_graph_takes(service_request_kind kind)
{
    return kind == SERVICE_LAUNCH || kind == SERVICE_BLAS || kind == SERVICE_COPY || kind == SERVICE_FILL;
}

/* Why the graph does not record a request with so many bytes, or NULL. Under the lock. */
static const char *why_not(const strata_service_graph *graph, size_t bytes)
{
    if (graph->ended)
        return "the recording has ended; begin another graph";
    if (graph->count == STRATA_SERVICE_GRAPH_LIMIT)
        return "it has 65536 requests, the most that are possible; make several graphs";
    return graph->service->backend->recorded_bytes && bytes > graph->service->backend->recorded_limit - graph->bytes
               ? "its requests would have more than 64 MiB, the most that a worker takes; make several graphs"
               : NULL;
}

strata_status service_graph_add(strata_service_graph *graph, strata_future *request, bool has_out)
{
    const service_backend *backend = graph->service->backend;
    const size_t bytes = backend->recorded_bytes ? backend->recorded_bytes(request) : 0;
    const char *reason = has_out ? "out is not NULL, and a recorded request has no answer of its own" : NULL;
    strata_lock_take(&graph->lock);
    const size_t number = graph->count + 1;
    if (!reason)
        reason = why_not(graph, bytes);
    if (!reason) {
        service_list_add(&graph->parts, request);
        graph->count++;
        graph->bytes += bytes;
    }
    strata_lock_release(&graph->lock);
    return !reason ? STRATA_SUCCESS
                   : strata_fail(STRATA_ERROR_INVALID_VALUE, "graph \"%s\" does not record request %zu: %s",
                                 graph->name, number, reason);
}

/* ---- the end ---- */

void service_graph_note_made(strata_service_graph *graph)
{
    atomic_store_explicit(&graph->generation, strata_device_state_generation(graph->service->state),
                          memory_order_relaxed);
    atomic_store_explicit(&graph->made, SERVICE_GRAPH_MADE, memory_order_release);
}

void service_graph_drop_recording(strata_service_graph *graph)
{
    if (atomic_load_explicit(&graph->made, memory_order_relaxed) != SERVICE_GRAPH_MADE)
        atomic_store_explicit(&graph->made, SERVICE_GRAPH_FAILED, memory_order_release);
    drop_parts(graph);
}

strata_status service_graph_fail(strata_service_graph *graph)
{
    const strata_error failed = *strata_error_in_force();
    service_graph_drop_recording(graph);
    return strata_error_raise_again(&failed);
}

strata_status service_graph_fail_unended(strata_service_graph *graph)
{
    strata_lock_take(&graph->lock);
    graph->ended = true;
    strata_lock_release(&graph->lock);
    atomic_store_explicit(&graph->generation, strata_device_state_generation(graph->service->state),
                          memory_order_relaxed);
    return service_graph_fail(graph);
}

strata_status service_graph_reopen(strata_future *end)
{
    const strata_error failed = *strata_error_in_force();
    strata_service_graph *graph = end->recorded_graph;
    end->recorded_graph = NULL;
    strata_lock_take(&graph->lock);
    graph->ended = false;
    strata_lock_release(&graph->lock);
    service_graph_unhold(graph);
    return strata_error_raise_again(&failed);
}

strata_status service_graph_fail_part(size_t number)
{
    const strata_error failed = *strata_error_in_force();
    strata_error named = failed;
    snprintf(named.message, sizeof named.message, "request %zu of the graph: %.440s", number + 1, failed.message);
    return strata_error_raise_again(&named);
}

strata_status service_graph_check_made(const strata_service_graph *graph)
{
    switch (atomic_load_explicit(&graph->made, memory_order_acquire)) {
    case SERVICE_GRAPH_MADE:
        return STRATA_SUCCESS;
    case SERVICE_GRAPH_FAILED:
        if (atomic_load_explicit(&graph->generation, memory_order_relaxed) !=
            strata_device_state_generation(graph->service->state))
            return strata_fail(STRATA_ERROR_STALE,
                               "graph \"%s\" is stale: the context was lost while it was made; record it again",
                               graph->name);
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "graph \"%s\" could not be made: the answer to its end says why",
                           graph->name);
    default:
        break;
    }
    return graph->begun
               ? STRATA_ERROR_NOT_READY
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "graph \"%s\" is not made yet: wait until its end is answered with success, or send both "
                             "as one sender",
                             graph->name);
}
