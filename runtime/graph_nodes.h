/* Sets of graph nodes, and where a stream stands in a capture: its next work depends on the nodes of its *front*. */
#ifndef STRATA_RUNTIME_GRAPH_NODES_H
#define STRATA_RUNTIME_GRAPH_NODES_H

#include "core/streams/device.h"

/* A set of nodes, in no order. All zero: empty. */
typedef struct strata_nodes {
    CUgraphNode *items; /* NULL while the few suffice */
    CUgraphNode few[2];
    size_t count, room; /* of `items` */
} strata_nodes;

static inline const CUgraphNode *strata_nodes_items(const strata_nodes *nodes)
{
    return nodes->items ? nodes->items : nodes->few;
}

bool strata_nodes_has(const strata_nodes *nodes, CUgraphNode node);

/* Adds a node that is not in the set. False without host memory. */
bool strata_nodes_push(strata_nodes *nodes, CUgraphNode node);

/* Adds the nodes that are missing. False without host memory; some may be added then. */
bool strata_nodes_add_missing(strata_nodes *nodes, const CUgraphNode *added, size_t count);
static inline bool strata_nodes_add(strata_nodes *nodes, const CUgraphNode *added, size_t count)
{
    if (count > 1 || (count && nodes->count))
        return strata_nodes_add_missing(nodes, added, count);
    if (count) /* few[0] is the first of an empty set */
        *(nodes->items ? nodes->items : nodes->few) = *added;
    nodes->count += count;
    return true;
}

void strata_nodes_free_items(strata_nodes *nodes);

static inline void strata_nodes_free(strata_nodes *nodes)
{
    if (__builtin_expect(nodes->items != NULL, 0))
        strata_nodes_free_items(nodes);
    nodes->count = 0;
}

/* A stream's place in a capture. The front is valid until the next call on the stream. */
typedef struct strata_capture_front {
    CUstreamCaptureStatus status;
    cuuint64_t id; /* of the capture; never used again */
    CUgraph graph; /* the graph that is being made */
    const CUgraphNode *nodes;
    size_t count;
} strata_capture_front;

/* Asks the driver for a stream's place. *front has NONE if the stream is not being captured, and after an error:
 * DRIVER. A capture survives the call. */
strata_status strata_capture_ask(strata_device *device, CUstream stream, strata_capture_front *front);

#endif
