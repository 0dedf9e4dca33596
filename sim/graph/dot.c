/* Writes a graph in Graphviz's language. */
#include "graph/graph.h"
#include <inttypes.h>
#include <stdio.h>

static const char *kind_name(CUgraphNodeType type)
{
    static const char *const names[] = {"kernel",       "memcpy",      "memset",       "host",       "graph",
                                        "empty",        "event wait",  "event record", "",           "",
                                        "memory alloc", "memory free", "batch mem op", "conditional"};
    return (size_t)type < sizeof names / sizeof names[0] ? names[type] : "";
}

void sim_graph_write_dot(FILE *file, CUgraph graph)
{
    fprintf(file, "subgraph cluster_%" PRIu64 " {\n", graph->id);
    for (CUgraphNode node = graph->first; node; node = node->next) {
        fprintf(file, "\"node_%" PRIu64 "\" [label=\"%s\"];\n", node->id, kind_name(node->type));
        for (size_t i = 0; i < node->before.count; i++)
            fprintf(file, "\"node_%" PRIu64 "\" -> \"node_%" PRIu64 "\";\n", node->id, node->before.at[i]->id);
        if (node->child)
            sim_graph_write_dot(file, node->child);
        for (unsigned i = 0; i < node->branches.count; i++)
            sim_graph_write_dot(file, node->branches.bodies[i]);
    }
    fprintf(file, "}\n");
}
