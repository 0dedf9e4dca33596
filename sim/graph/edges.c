/* A graph's structure, and edges added and removed by hand. A query fills the caller's list and zeroes the rest;
 * without a list it gives the count. */
#include "graph/graph.h"
#include <string.h>

static const CUgraphEdgeData plain_edge = {.type = CU_GRAPH_DEPENDENCY_TYPE_DEFAULT};

void sim_graph_give_nodes(const CUgraphNode *from, size_t have, CUgraphNode *nodes, CUgraphEdgeData *data,
                          size_t *count)
{
    if (!nodes) {
        *count = have;
        return;
    }
    size_t given = have < *count ? have : *count;
    for (size_t i = 0; i < *count; i++) {
        nodes[i] = i < given ? from[i] : NULL;
        if (data)
            data[i] = plain_edge;
    }
    *count = given;
}

size_t sim_graph_count_edges(CUgraph graph)
{
    size_t count = 0;
    for (CUgraphNode node = graph->first; node; node = node->next)
        count += node->before.count;
    return count;
}

size_t sim_graph_list_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t room)
{
    size_t given = 0;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        for (size_t i = 0; i < node->before.count && given < room; i++) {
            from[given] = node;
            to[given++] = node->before.at[i];
        }
    }
    return given;
}

/* ---- changes ---- */

/* Programmatic dependent launch is not simulated. */
bool sim_graph_edge_good(CUgraph graph, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data)
{
    if (data && memcmp(data, &plain_edge, sizeof plain_edge) != 0)
        return false;
    return sim_node_valid(from) && sim_node_valid(to) && from != to && from->graph == graph && to->graph == graph;
}

CUresult sim_graph_add_edge(CUgraphNode from, CUgraphNode to)
{
    if (sim_nodes_have(&to->after, from))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_edge_add(from, to) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_graph_remove_edge(CUgraphNode from, CUgraphNode to)
{
    if (!sim_nodes_have(&to->after, from))
        return CUDA_ERROR_INVALID_VALUE;
    sim_edge_remove(from, to);
    return CUDA_SUCCESS;
}
