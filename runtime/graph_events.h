/* Telling the stack's layers what happens to captures and graphs. */
#ifndef STRATA_RUNTIME_GRAPH_EVENTS_H
#define STRATA_RUNTIME_GRAPH_EVENTS_H

#include "runtime/graphs.h"

/* Tells of an event of a graph. The caller holds no lock. */
void strata_graph_tell(const strata_graph *graph, strata_graph_event_kind kind, CUstream stream, strata_status status);

/* Tells of a capture that gave no graph. */
void strata_capture_tell_failure(const strata_capture *capture, strata_status status);

#endif
