/* Graphs as text. */
#include "graph_text.h"

#include <stdio.h>

enum { MOST = 32 };

const char *node_kind(CUgraphNode node)
{
    static const char *const kinds[] = {"kernel", "memcpy",     "memset",   "host",  "graph", "empty", "wait",
                                        "record", "sem_signal", "sem_wait", "alloc", "free",  "batch", "conditional"};
    CUgraphNodeType type;
    CUresult result = cu.GraphNodeGetType(node, &type);
    if (result != CUDA_SUCCESS)
        return result_name(result);
    return (unsigned)type < sizeof kinds / sizeof kinds[0] ? kinds[type] : "unknown";
}

static int place_of(CUgraphNode node, const CUgraphNode *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (nodes[i] == node)
            return (int)i;
    }
    return -1;
}

/* In ascending order: the driver's order of dependencies is no fact about a graph. */
static int write_dependencies(char *text, size_t room, CUgraphNode node, const CUgraphNode *nodes, size_t count)
{
    CUgraphNode from[MOST];
    CUgraphEdgeData edges[MOST];
    bool depends[MOST] = {false};
    size_t from_count = MOST;
    int length = 0;
    if (cu.GraphNodeGetDependencies(node, from, edges, &from_count) != CUDA_SUCCESS)
        return snprintf(text, room, "?");
    for (size_t i = 0; i < from_count; i++) {
        int place = place_of(from[i], nodes, count);
        if (place >= 0)
            depends[place] = true;
    }
    for (size_t i = 0; i < count; i++) {
        if (depends[i])
            length += snprintf(text + length, room - (size_t)length, "%s%zu", length > 0 ? "," : "", i);
    }
    return length;
}

void ask_graph(CUgraph graph, const char *question)
{
    char text[1024] = "no nodes";
    CUgraphNode nodes[MOST];
    size_t count = MOST;
    int length = 0;
    CUresult result = cu.GraphGetNodes(graph, nodes, &count);
    if (result != CUDA_SUCCESS) {
        ask(result, "%s", question);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%s(", i > 0 ? " " : "", node_kind(nodes[i]));
        length += write_dependencies(text + length, sizeof text - (size_t)length, nodes[i], nodes, count);
        length += snprintf(text + length, sizeof text - (size_t)length, ")");
    }
    ask_text(text, "%s", question);
}
