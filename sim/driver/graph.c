/* Entry points: graphs. */
#include "driver/enter.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!phGraph || flags != 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    CUgraph made = sim_graph_create();
    if (made)
        *phGraph = made;
    return sim_leave(made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* Child graphs belong to their parent, a graph under capture to its capture. */
CUresult cuGraphDestroy(CUgraph hGraph)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_graph_valid(hGraph) || hGraph->embedded || hGraph->capture)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    sim_graph_free(hGraph);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!phGraphClone || !sim_graph_valid(originalGraph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    return sim_leave(sim_graph_clone(originalGraph, phGraphClone));
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!phNode || !sim_node_valid(hOriginalNode) || !sim_graph_valid(hClonedGraph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    for (CUgraphNode node = hClonedGraph->first; node; node = node->next) {
        if (node->original == hOriginalNode->id) {
            *phNode = node;
            return sim_leave(CUDA_SUCCESS);
        }
    }
    return sim_leave(CUDA_ERROR_INVALID_VALUE);
}

/* Memory nodes stay: the graph's addresses depend on its order. */
CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_node_valid(hNode))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (sim_graph_has_memory(hNode->graph))
        return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
    sim_node_free(hNode);
    return sim_leave(CUDA_SUCCESS);
}

/* Flags ask for more or less detail; ignored. */
CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    (void)flags;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!path || !sim_graph_valid(hGraph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    fprintf(out, "digraph dot {\n");
    sim_graph_write_dot(out, hGraph);
    fprintf(out, "}\n");
    bool failed = fclose(out) != 0;
    int file = failed ? -1 : sim_output_open(path, false);
    failed = file < 0 || sim_output_write(file, text, bytes) < bytes;
    if (file >= 0)
        failed = close(file) != 0 || failed;
    free(text);
    return sim_leave(failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS);
}
