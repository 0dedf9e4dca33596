/* Graphs: what a capture leaves. */
#ifndef STRATA_RUNTIME_GRAPHS_H
#define STRATA_RUNTIME_GRAPHS_H

#include "runtime/captures.h"
#include "runtime/graph_uses.h"

struct strata_graph {
    strata_runtime *runtime;      /* exists while the graph does; it and the members up to `exec` are constant */
    strata_device_record *record; /* held by the runtime's state */
    uint64_t word;                /* the record's when the graph was made */
    size_t nodes;
    size_t conditionals; /* conditional nodes, those in bodies included */
    strata_tag name;
    CUgraph graph; /* from which the executable was made: its nodes are the handles */
    CUgraphExec exec;
    CUgraph latest; /* the driver's graph of the last update, without changes of nodes since; before one, `graph` */
    bool changed;   /* nodes were changed since then */
    strata_capture_uses uses;  /* guarded by the launches' lock of the pool, like the two before and after */
    strata_graph_uses listed;  /* for launches */
    bool refusing;             /* it refuses frees of its blocks */
    strata_capture_pool *pool; /* held */
    _Atomic bool uploaded;
    _Atomic uint64_t replays;
};

/* Makes a graph of an ended capture, whose driver's graph, uses and references it takes over. On an error the capture
 * has them still. */
strata_status strata_graph_make(strata_capture *capture, strata_graph **out);

/* SUCCESS, or why `call` cannot be made: STALE after a rebuild. */
strata_status strata_graph_check(const strata_graph *graph, const char *call);

/* As strata_graph_check, for a call that layers hear of: tells them if it is refused for a stale graph. */
strata_status strata_graph_check_call(const strata_graph *graph, const char *call, strata_graph_event_kind kind,
                                      CUstream stream);

/* The node's type for messages, such as "kernel". */
const char *strata_graph_node_type(CUgraphNode node);

/* Takes a capture's uses over, and frees their marks, which only the capture needs. The launches' lock is held, or the
 * graph is the caller's alone. */
void strata_graph_take_uses(strata_graph *graph, strata_capture_uses *uses);

/* Launches a graph on a stream that is being captured, which adds a node to the capture. False: the stream is in no
 * capture. */
bool strata_captured_launch(strata_graph *graph, CUstream stream, strata_status *status);

/* Ends a capture's or a graph's uses: frees blocks that were freed meanwhile, and releases references and pools.
 * `refusing`: the graph refuses frees. Errors: of such a free, which later calls try again; of the end of a pool. */
strata_status strata_capture_uses_drop(strata_runtime *runtime, strata_capture_uses *uses, bool refusing);

#endif
