/* Telling the stack's layers what happens to captures and graphs. */
#ifndef STRATA_RUNTIME_GRAPH_EVENTS_H
#define STRATA_RUNTIME_GRAPH_EVENTS_H

#include "runtime/graphs.h"

/* No lock is held. */
void strata_graph_tell(const strata_graph *graph, strata_graph_event_kind kind, CUstream stream, strata_status status);

/* Of a capture of which no graph was made. */
void strata_capture_tell_failure(const strata_capture *capture, strata_status status);

#endif
