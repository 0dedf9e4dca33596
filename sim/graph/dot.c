/* Writing a graph down in the language of Graphviz. */
#include "graph/graph.h"
#include <inttypes.h>
#include <stdio.h>

static const char *kind_name(CUgraphNodeType type)
{
    static const char *const names[] = {"kernel",     "memcpy",       "memset", "host", "graph",        "empty",
                                        "event wait", "event record", "",       "",     "memory alloc", "memory free"};
    return (size_t)type < sizeof names / sizeof names[0] ? names[type] : "";
}

static void write_graph(FILE *file, CUgraph graph)
{
    fprintf(file, "subgraph cluster_%" PRIu64 " {\n", graph->id);
    for (CUgraphNode node = graph->first; node; node = node->next) {
        fprintf(file, "\"node_%" PRIu64 "\" [label=\"%s\"];\n", node->id, kind_name(node->type));
        for (size_t i = 0; i < node->before.count; i++)
            fprintf(file, "\"node_%" PRIu64 "\" -> \"node_%" PRIu64 "\";\n", node->id, node->before.at[i]->id);
        if (node->child)
            write_graph(file, node->child);
    }
    fprintf(file, "}\n");
}

/* The flags ask for more or less detail; there is one amount of it. */
CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    (void)flags;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!path || !sim_graph_valid(hGraph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    FILE *file = fopen(path, "w");
    if (!file)
        return sim_leave(CUDA_ERROR_OPERATING_SYSTEM);
    fprintf(file, "digraph dot {\n");
    write_graph(file, hGraph);
    fprintf(file, "}\n");
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    return sim_leave(failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS);
}
