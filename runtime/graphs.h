/* Graphs: what a capture leaves. */
#ifndef STRATA_RUNTIME_GRAPHS_H
#define STRATA_RUNTIME_GRAPHS_H

#include "runtime/captures.h"

/* Makes a graph of an ended capture, whose driver's graph, uses and references it takes over. On an error the capture
 * has them still. */
strata_status strata_graph_make(strata_capture *capture, strata_graph **out);

#endif
