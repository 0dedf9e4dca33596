/* Graphs that a device service makes of requests, in both forms: requests are recorded instead of being done, and are
 * then done again and again by one request.
 *
 *     strata_service_graph_begin(service, "step", &graph);
 *     const strata_send_options into = {.graph = graph};
 *     strata_service_fill(service, sums, 0, 4, &into, NULL);
 *     strata_service_launch(service, &kernel, &into, NULL);
 *     strata_service_sgemm(service, &product, &into, NULL);
 *     strata_service_graph_end(graph, NULL, &made);          the device's graph is made: wait, or launch it at once
 *     strata_service_graph_launch(graph, NULL, &done);       a future each: made's answer says why it was not
 *     strata_service_graph_release(graph);
 *
 * What is recorded is checked as any request, and copied: strata_service_copy, _fill, _launch, _blas and _sgemm; other
 * requests answer UNSUPPORTED. A request that is refused is not recorded, and the graph lacks it: check each status.
 * Recorded requests are done in their order, each after the one before it. `out` is NULL: a recorded request has no
 * answer of its own. Its time limit, callback, priority and hint are those of the launch: a request that names its own
 * is refused. Its sender orders nothing, and stands in a recording (strata_service_options.record).
 *
 * A graph keeps the memory of the references that it names. It belongs to the generation in which it was made: after
 * the context is lost it is stale, and is recorded again with new references and modules. Any thread may call. */
#ifndef STRATA_SERVICE_GRAPH_H
#define STRATA_SERVICE_GRAPH_H

#include <strata/service.h>
#include <strata/service_blas.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_service_graph strata_service_graph;

enum { STRATA_SERVICE_GRAPH_LIMIT = 65536 }; /* requests of a graph; isolated, they have at most 64 MiB as well */

/* Begins a recording. `name` is the graph's in logs, and the tag of memory that cuBLAS works in: at most 255 bytes of
 * UTF-8 without control characters; NULL: "graph". Asks the device nothing. Errors: INVALID_VALUE, STALE (shutting
 * down), OUT_OF_HOST_MEMORY, FORKED, why it stopped. */
STRATA_API strata_status strata_service_graph_begin(strata_service *service, const char *name,
                                                    strata_service_graph **out);

/* Ends the recording, and makes the device's graph: a request. An answer that is a failure (its message names the
 * recorded request) leaves a graph that can only be released, but for TIMEOUT and CANCELLED: if the end had begun, the
 * graph may be made all the same. Errors besides: INVALID_VALUE (nothing is recorded, or it was ended). It can be
 * called again after any error that is returned, and, isolated, after an answer that this process is short of
 * descriptors or memory (IO, OUT_OF_HOST_MEMORY): the recording is still there. */
STRATA_API strata_status strata_service_graph_end(strata_service_graph *graph, const strata_send_options *send,
                                                  strata_future **out);

/* Does what was recorded; the answer comes when it is complete. May be sent before the answer to the end, by that
 * sender with that priority. Errors, at once or as the answer: STALE (the context was rebuilt since, or lost while it
 * was made), INVALID_VALUE (the graph was not ended, or could not be made). */
STRATA_API strata_status strata_service_graph_launch(strata_service_graph *graph, const strata_send_options *send,
                                                     strata_future **out);

/* Gives the handle back. Requests that name the graph go on; it ends with the last of them, and what was recorded and
 * not ended is dropped. In process a graph is released before its service is destroyed, which else answers BUSY. NULL
 * is ignored. */
STRATA_API void strata_service_graph_release(strata_service_graph *graph);

#ifdef __cplusplus
}
#endif

#endif
