/* Graphs: what a capture leaves. */
#ifndef STRATA_RUNTIME_GRAPHS_H
#define STRATA_RUNTIME_GRAPHS_H

#include "runtime/captures.h"
#include "runtime/graph_uses.h"

struct strata_graph {
    strata_runtime *runtime;      /* exists while the graph does; these are constant */
    strata_device_record *record; /* held by the runtime's state */
    uint64_t word;                /* of the record when the graph was made */
    size_t nodes;
    size_t conditionals; /* nodes, those in bodies too */
    strata_tag name;
    CUgraph graph; /* from which the executable was made: its nodes are the handles */
    CUgraphExec exec;
    CUgraph latest;            /* what it does since its last update, but for changed nodes; else the graph */
    bool changed;              /* nodes, since then */
    strata_capture_uses uses;  /* these change under the launches' lock of the pool */
    strata_graph_uses listed;  /* for launches */
    bool refusing;             /* frees of its blocks */
    strata_capture_pool *pool; /* held */
    _Atomic bool uploaded;
    _Atomic uint64_t replays;
};

/* Makes a graph of an ended capture, whose driver's graph, uses and references it takes over. On an error the capture
 * has them still. */
strata_status strata_graph_make(strata_capture *capture, strata_graph **out);

/* SUCCESS, or why `call` cannot be made: STALE after a rebuild. */
strata_status strata_graph_check(const strata_graph *graph, const char *call);

/* Of a call that layers hear of: also that it was refused for a stale graph. */
strata_status strata_graph_check_call(const strata_graph *graph, const char *call, strata_graph_event_kind kind,
                                      CUstream stream);

/* "kernel", for messages. */
const char *strata_graph_node_type(CUgraphNode node);

/* Takes a capture's uses over, in which where they were in the capture is no longer needed. The launches' lock is held,
 * or the graph is the caller's alone. */
void strata_graph_take_uses(strata_graph *graph, strata_capture_uses *uses);

/* A launch on a stream that is being captured makes a node of the capture. False: it is in no capture. */
bool strata_captured_launch(strata_graph *graph, CUstream stream, strata_status *status);

/* Lets go of a capture's or a graph's uses: blocks that were freed meanwhile are freed. Errors: of such a free, which
 * is tried again by later calls, and by the second one. */
strata_status strata_capture_uses_drop(strata_runtime *runtime, strata_capture_uses *uses, bool refusing);

#endif
