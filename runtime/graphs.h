/* Graphs: what a capture leaves. */
#ifndef STRATA_RUNTIME_GRAPHS_H
#define STRATA_RUNTIME_GRAPHS_H

#include "runtime/captures.h"

/* Makes a graph of an ended capture, whose driver's graph, uses and references it takes over. On an error the capture
 * has them still. */
strata_status strata_graph_make(strata_capture *capture, strata_graph **out);

/* Lets go of a capture's or a graph's uses: blocks that were freed meanwhile are freed. Errors: of such a free. */
strata_status strata_capture_uses_drop(strata_runtime *runtime, strata_capture_uses *uses, bool refusing);

#endif
