/* Entry points: the edges of graphs. */
#include "driver/enter.h"

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!numNodes || !sim_graph_valid(hGraph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    CUgraphNode node = hGraph->first;
    for (size_t i = 0; nodes && i < *numNodes; i++) {
        nodes[i] = node;
        node = node ? node->next : NULL;
    }
    if (!nodes || *numNodes > hGraph->count)
        *numNodes = hGraph->count;
    return sim_leave(CUDA_SUCCESS);
}

/* Latest root first. */
CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!numRootNodes || !sim_graph_valid(hGraph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    size_t have = hGraph->roots.count;
    for (size_t i = 0; rootNodes && i < *numRootNodes; i++)
        rootNodes[i] = i < have ? hGraph->roots.at[have - 1 - i] : NULL;
    if (!rootNodes || *numRootNodes > have)
        *numRootNodes = have;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                            size_t *numEdges)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!numEdges || !sim_graph_valid(hGraph) || !from != !to || (edgeData && !from))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!from) {
        *numEdges = sim_graph_count_edges(hGraph);
        return sim_leave(CUDA_SUCCESS);
    }
    size_t room = *numEdges;
    *numEdges = sim_graph_list_edges(hGraph, from, to, room);
    for (size_t i = 0; i < room; i++) {
        if (edgeData)
            edgeData[i] = (CUgraphEdgeData){.type = CU_GRAPH_DEPENDENCY_TYPE_DEFAULT};
        if (i >= *numEdges) {
            from[i] = NULL;
            to[i] = NULL;
        }
    }
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                       size_t *numDependencies)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!numDependencies || !sim_node_valid(hNode))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_graph_give_nodes(hNode->after.at, hNode->after.count, dependencies, edgeData, numDependencies);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
                                         size_t *numDependentNodes)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!numDependentNodes || !sim_node_valid(hNode))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_graph_give_nodes(hNode->before.at, hNode->before.count, dependentNodes, edgeData, numDependentNodes);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
    return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!type || !sim_node_valid(hNode))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *type = hNode->type;
    return sim_leave(CUDA_SUCCESS);
}

/* Edges before a wrong one are changed. Cycles are found at instantiation. */
static CUresult change_edges(const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t count,
                             CUgraph graph, CUresult (*change)(CUgraphNode from, CUgraphNode to))
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        bool good = sim_graph_edge_good(graph, from[i], to[i], data ? &data[i] : NULL);
        result = good ? change(from[i], to[i]) : CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

static CUresult enter_edges(const char *entry, CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                            size_t count)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    bool good = sim_graph_valid(graph) && (count == 0 || (from && to));
    return good ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult add_edges(const char *entry, CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                          const CUgraphEdgeData *data, size_t count)
{
    CUresult result = enter_edges(entry, graph, from, to, count);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(change_edges(from, to, data, count, graph, sim_graph_add_edge));
}

/* Whether the graph has memory is asked before the edges are looked at. */
static CUresult remove_edges(const char *entry, CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *data, size_t count)
{
    CUresult result = enter_edges(entry, graph, from, to, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (sim_graph_has_memory(graph))
        return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
    return sim_leave(change_edges(from, to, data, count, graph, sim_graph_remove_edge));
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    return add_edges(__func__, hGraph, from, to, edgeData, numDependencies);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies)
{
    return add_edges(__func__, hGraph, from, to, NULL, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    return remove_edges(__func__, hGraph, from, to, edgeData, numDependencies);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies)
{
    return remove_edges(__func__, hGraph, from, to, NULL, numDependencies);
}
