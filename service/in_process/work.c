/* What each kind of request submits. */
#include "core/base/error.h"
#include "runtime/graphs.h"
#include "runtime/references.h"
#include "runtime/runtime.h"
#include "service/in_process/in_process.h"

/* ---- memory ---- */

static strata_status allocate(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    *waits = false; /* the memory can be used in stream order */
    return strata_ref_allocate(service->context->runtime, request->type, request->length, !request->raw, lane->stream,
                               &request->result.ref);
}

static strata_status submit_copy(const strata_future *request, const strata_ref_memory *memory, CUstream stream)
{
    const bool to_host = request->kind == SERVICE_COPY_TO_HOST;
    void *host = strata_host_buffer_memory(request->buffer);
    strata_call_scope scope;
    const strata_status status = strata_call_scope_enter(&scope, request->ref->record->device,
                                                         strata_call_scope_for(stream) | STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = to_host ? strata_cu.MemcpyDtoHAsync(host, memory->address, memory->bytes, stream)
                                    : strata_cu.MemcpyHtoDAsync(memory->address, host, memory->bytes, stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, to_host ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync",
                                                       "copying %zu bytes", memory->bytes);
}

static strata_status copy(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    const bool to_host = request->kind == SERVICE_COPY_TO_HOST;
    strata_ref_memory memory;
    strata_launch recorder;
    strata_status status = strata_ref_access(request->ref, &memory);
    if (status == STRATA_SUCCESS && to_host)
        status = service_check_unshared(request->buffer);
    if (status == STRATA_SUCCESS)
        status = strata_launch_begin(&recorder, service->context->runtime, lane->stream, STRATA_LAUNCH_STRICT);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_launch_use_ref(&recorder, request->ref, to_host ? STRATA_ACCESS_READ : STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&recorder);
    const bool prepared = status == STRATA_SUCCESS;
    if (prepared)
        status = submit_copy(request, &memory, lane->stream);
    *waits = prepared; /* also after a failure: the copy may have begun */
    status = service_end_recorder(&recorder, status, prepared);
    if (status == STRATA_SUCCESS)
        atomic_fetch_add_explicit(to_host ? &service->bytes_to_host : &service->bytes_from_host, memory.bytes,
                                  memory_order_relaxed);
    return status;
}

/* ---- functions ---- */

/* Errors of the program's function are kept, so that the answer has the record. */
static strata_status call(const strata_service *service, const service_lane *lane, strata_future *request)
{
    const strata_service_operation *operation = &request->operation;
    strata_error_aside aside;
    strata_error failed;
    strata_error_set_aside(&aside);
    if (operation->before)
        operation->before(operation, operation->data);
    const strata_status status = operation->function(service->context->runtime, lane->stream, operation->data);
    failed = *strata_last_error();
    if (operation->enqueued)
        operation->enqueued(operation, operation->data);
    strata_error_take_back(&aside);
    request->result.returned = status;
    if (status == STRATA_SUCCESS)
        return STRATA_SUCCESS;
    return failed.status == status ? strata_error_raise_again(&failed)
                                   : strata_fail(status, "the function of operation \"%s\" failed: %s", request->name,
                                                 strata_status_text(status));
}

static strata_status run(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, service->context->runtime->device, STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    status = call(service, lane, request);
    if (request->kind == SERVICE_RUN)
        status = service_end_left_capture(service, lane, status);
    strata_call_scope_leave(&scope);
    *waits = !request->raw; /* also after a failure: it may have submitted work */
    return status;
}

/* ---- graphs ---- */

static strata_status record(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    bool ran;
    *waits = false;
    strata_status status = service_begin_capture(service, lane, STRATA_CAPTURE_THREAD_LOCAL);
    if (status != STRATA_SUCCESS)
        return status;
    status = run(service, lane, request, &ran);
    return service_end_capture(service, lane, status, &request->result.graph);
}

static strata_status launch_graph(strata_service *service, service_lane *lane, strata_future *request, bool *waits)
{
    /* A graph of a lost context is of another runtime too: launching it says that it is stale. */
    if (request->graph->runtime != service->context->runtime && request->graph->word == request->graph->record->word)
        return strata_fail(STRATA_ERROR_WRONG_DEVICE, "the graph was recorded by another service or runtime");
    const strata_status status = strata_graph_launch(request->graph, lane->stream);
    *waits = status == STRATA_SUCCESS;
    return status;
}

const service_submit service_submits[SERVICE_KINDS] = {
    [SERVICE_ALLOCATE] = allocate,
    [SERVICE_COPY_TO_HOST] = copy,
    [SERVICE_COPY_FROM_HOST] = copy,
    [SERVICE_RUN] = run,
    [SERVICE_LOAD] = service_load_module,
    [SERVICE_LAUNCH] = service_launch_kernel,
    [SERVICE_RECORD_GRAPH] = record,
    [SERVICE_LAUNCH_GRAPH] = launch_graph,
    [SERVICE_BLAS] = service_compute,
    [SERVICE_COPY] = service_work_on_device,
    [SERVICE_FILL] = service_work_on_device,
    [SERVICE_MAKE_GRAPH] = service_make_graph,
    [SERVICE_PLAY_GRAPH] = service_play_graph,
};
