/* Which nodes of a captured graph come before the next work of a stream.
 *
 * That is asked of the graph, since a program forks and joins streams by events of its own, which Strata does not see.
 * A walk of the whole graph for each question would make a capture's cost the square of its size. So what came before a
 * stream's earlier front is kept: all of it comes before a later front from which each node of the earlier one is met,
 * and the walk goes no further than that. A front that does not meet them (the program set the stream's dependencies
 * itself) is walked anew. Nodes are not removed while a graph is captured: the driver forbids it. Guarded by the
 * captures' lock. */
#ifndef STRATA_RUNTIME_GRAPH_ANCESTORS_H
#define STRATA_RUNTIME_GRAPH_ANCESTORS_H

#include "runtime/graph_nodes.h"

/* One stream's, in one capture. All zero but the stream: nothing is known. */
typedef struct strata_ancestors {
    struct strata_ancestors *next;
    CUstream stream;
    CUgraphNode *table; /* hashed: the nodes of the front, and all that come before them */
    size_t mask, count;
    strata_nodes front; /* of the last walk */
} strata_ancestors;

/* The ancestors of a stream, created if missing; NULL without host memory. */
strata_ancestors *strata_ancestors_of(strata_ancestors **list, CUstream stream);

/* Walks to a front. False if the driver or host memory refuses: then nothing is known to come before it. */
bool strata_ancestors_reach(strata_ancestors *ancestors, const strata_capture_front *front);

/* Whether a node is one of the last front's, or comes before them. */
bool strata_ancestors_have(const strata_ancestors *ancestors, CUgraphNode node);

void strata_ancestors_free(strata_ancestors **list);

/* Where the next work of a stream stands in a capture. Handles name a stream only for a time, and the per-thread stream
 * is another one on each thread: what comes before is asked of the graph, also for work on the same handle. */
typedef struct strata_capture_place {
    CUstream stream;
    const strata_capture_front *front;
    strata_ancestors **known;    /* of the capture's streams */
    strata_ancestors *ancestors; /* the stream's, walked to the front; NULL: not asked for yet, or the walk failed */
    bool asked;
    struct strata_capture_place *around; /* in the body of a conditional node: the node's; else NULL */
} strata_capture_place;

/* Whether work at the place comes after a node; after all nodes of a set. False if it cannot be learned. */
bool strata_capture_place_is_after_slow(strata_capture_place *place, CUgraphNode node);
static inline bool strata_capture_place_is_after(strata_capture_place *place, CUgraphNode node)
{
    const strata_capture_front *front = place->front;
    return (front->count && front->nodes[0] == node) || strata_capture_place_is_after_slow(place, node);
}

/* False: what comes before the place was asked for, and cannot be learned. */
static inline bool strata_capture_place_is_known(const strata_capture_place *place)
{
    return !place->asked || place->ancestors;
}

static inline bool strata_capture_place_is_after_all(strata_capture_place *place, const strata_nodes *nodes)
{
    const CUgraphNode *items = strata_nodes_items(nodes);
    for (size_t i = 0; i < nodes->count; i++)
        if (!strata_capture_place_is_after(place, items[i]))
            return false;
    return true;
}

#endif
