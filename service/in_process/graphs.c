/* Graphs of requests in this process: what each recorded request submits is captured from the lane's stream.
 *
 * The capture is relaxed: all its calls are the service's own, and cuBLAS may load kernels meanwhile. */
#include "core/base/error.h"
#include "service/graph.h"
#include "service/in_process/in_process.h"

/* cuBLAS is opened before the capture, which it would spoil. */
static strata_status prepare(strata_service *service, const strata_service_graph *graph)
{
    strata_blas *blas;
    for (const strata_future *part = graph->parts.first; part; part = part->next)
        if (part->kind == SERVICE_BLAS)
            return service_find_blas(service, &blas);
    return STRATA_SUCCESS;
}

static service_submit submit_of(service_request_kind kind)
{
    return kind == SERVICE_LAUNCH ? service_launch_kernel
           : kind == SERVICE_BLAS ? service_compute
                                  : service_work_on_device;
}

static strata_status submit_parts(strata_service *service, service_lane *lane, const strata_service_graph *graph)
{
    strata_status status = STRATA_SUCCESS;
    size_t number = 0;
    bool waits;
    for (strata_future *part = graph->parts.first; part && status == STRATA_SUCCESS; part = part->next, number++) {
        status = submit_of(part->kind)(service, lane, part, &waits);
        if (status != STRATA_SUCCESS)
            status = service_graph_fail_part(number);
    }
    return status;
}

static strata_status capture(strata_service *service, service_lane *lane, strata_service_graph *graph)
{
    strata_status status = prepare(service, graph);
    if (status == STRATA_SUCCESS)
        status = service_begin_capture(service, lane, STRATA_CAPTURE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_capture_set_name(service->context->runtime, lane->stream, graph->name);
    if (status == STRATA_SUCCESS)
        status = submit_parts(service, lane, graph);
    return service_end_capture(service, lane, status, &graph->local);
}

strata_status service_make_graph(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    strata_service_graph *graph = request->recorded_graph;
    *waits = false;
    const strata_status status = capture(service, lane, graph);
    if (status != STRATA_SUCCESS)
        return service_graph_fail(graph);
    service_graph_note_made(graph);
    return STRATA_SUCCESS;
}

strata_status service_play_graph(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    strata_service_graph *graph = request->recorded_graph;
    (void)service;
    strata_status status = service_graph_check_made(graph);
    if (status == STRATA_SUCCESS)
        status = strata_graph_launch(graph->local, lane->stream);
    *waits = status == STRATA_SUCCESS;
    return status;
}
