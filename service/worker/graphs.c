/* Work, and graphs of it: a graph's file has the frames of its requests, which are recorded as they would be done. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "service/graph.h"
#include "service/worker/worker.h"

#include <string.h>
#include <unistd.h>

/* NULL: the kind is none of work. */
static const worker_work *work_of(uint32_t kind)
{
    switch (kind) {
    case WIRE_LAUNCH:
        return &worker_launches;
    case WIRE_BLAS:
        return &worker_products;
    case WIRE_COPY:
        return &worker_copies;
    case WIRE_FILL:
        return &worker_fills;
    default:
        return NULL;
    }
}

bool worker_take_work(worker *self, const worker_frame *frame)
{
    const worker_work *work = work_of(frame->head.kind);
    wire_send send;
    if (!work || !work->fits(frame))
        return false;
    memcpy(&send, frame->payload, sizeof send); /* each begins with it */
    worker_request *request = worker_request_make(self, frame->head.number);
    const strata_send_options options = worker_options_of(&send, request);
    const strata_status status = request ? work->send(self, frame, &options) : STRATA_ERROR_OUT_OF_HOST_MEMORY;
    worker_submitted(self, frame->head.number, &send, request, status);
    return true;
}

/* ---- graphs ---- */

enum { FLUSH_EVERY = 256 }; /* recorded requests: answers to others do not wait for all of a graph */

static strata_status record_one(worker *self, const worker_frame *frame, strata_service_graph *graph)
{
    const worker_work *work = work_of(frame->head.kind);
    const strata_send_options options = {.graph = graph};
    return work && work->fits(frame) ? work->send(self, frame, &options)
                                     : strata_fail(STRATA_ERROR_INVALID_VALUE, "its frame has no possible meaning");
}

static strata_status record_all(worker *self, wire_in *frames, strata_service_graph *graph)
{
    worker_frame frame;
    wire_result result;
    size_t number = 0;
    while ((result = wire_next(frames, &frame.head, &frame.payload, &frame.bytes)) == WIRE_GOES_ON) {
        if (record_one(self, &frame, graph) != STRATA_SUCCESS)
            return service_graph_fail_part(number);
        if (++number % FLUSH_EVERY == 0)
            worker_flush(self); /* a client that is gone is met by worker_serve */
    }
    return result == WIRE_LATER && frames->begin == frames->end
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE, "the frames of the graph's requests are not whole");
}

static strata_status record_requests(worker *self, int fd, const wire_graph *read, strata_service_graph *graph,
                                     worker_request *request)
{
    unsigned char *bytes;
    const strata_send_options options = worker_options_of(&read->send, request);
    if (!read->bytes || read->bytes > WIRE_GRAPH_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the requests of a graph have %llu bytes; 1 to %d are possible",
                           (unsigned long long)read->bytes, WIRE_GRAPH_LIMIT);
    strata_status status = worker_read_file(fd, read->bytes, "the requests of a graph", &bytes);
    if (status != STRATA_SUCCESS)
        return status;
    wire_in frames = {.bytes = bytes, .end = read->bytes};
    status = record_all(self, &frames, graph);
    strata_host_free(bytes);
    return status == STRATA_SUCCESS ? strata_service_graph_end(graph, &options, NULL) : status;
}

/* A graph that could not be made stays, so that launches are told so, until the client ends it. */
static strata_status make_graph(worker *self, int fd, const wire_graph *read, worker_request *request)
{
    strata_service_graph *graph;
    strata_status status = strata_service_graph_begin(self->service, read->name, &graph);
    if (status != STRATA_SUCCESS)
        return status;
    status = worker_graphs_add(&self->graphs, read->graph, graph);
    if (status != STRATA_SUCCESS) {
        const strata_error failed = *strata_error_in_force();
        strata_service_graph_release(graph);
        return strata_error_raise_again(&failed);
    }
    status = record_requests(self, fd, read, graph, request);
    return status == STRATA_SUCCESS ? STRATA_SUCCESS : service_graph_fail_unended(graph);
}

bool worker_take_graph(worker *self, const worker_frame *frame)
{
    wire_graph read;
    const int fd = wire_take_descriptor(&self->in);
    if (fd < 0)
        return false;
    if (!wire_read(frame->payload, frame->bytes, &read, sizeof read, true)) {
        close(fd);
        return false;
    }
    read.name[sizeof read.name - 1] = '\0';
    worker_request *request = worker_request_make(self, frame->head.number);
    const strata_status status = request ? make_graph(self, fd, &read, request) : STRATA_ERROR_OUT_OF_HOST_MEMORY;
    close(fd);
    worker_submitted(self, frame->head.number, &read.send, request, status);
    return true;
}

/* ---- launches of graphs ---- */

static strata_status play(worker *self, uint64_t number, const strata_send_options *options)
{
    strata_service_graph *graph = worker_graphs_find(&self->graphs, number);
    return graph ? strata_service_graph_launch(graph, options, NULL)
                 : strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "the worker has no graph of number %llu: the answer to its end says why it was not made",
                               (unsigned long long)number);
}

bool worker_take_play(worker *self, const worker_frame *frame)
{
    wire_play read;
    if (!wire_read(frame->payload, frame->bytes, &read, sizeof read, true))
        return false;
    worker_request *request = worker_request_make(self, frame->head.number);
    const strata_send_options options = worker_options_of(&read.send, request);
    const strata_status status = request ? play(self, read.graph, &options) : STRATA_ERROR_OUT_OF_HOST_MEMORY;
    worker_submitted(self, frame->head.number, &read.send, request, status);
    return true;
}
