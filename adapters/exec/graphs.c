/* The memory of graphs' own nodes. The driver makes it for a device when a graph with such nodes is launched or
 * uploaded, reuses it among graphs, and keeps it until it is trimmed. What it holds is charged to the budget as one
 * amount after each launch, upload and trim; if that does not fit, it is counted without a charge: a launch cannot be
 * refused for it. */
#include "adapters/exec/exec.h"

static _Atomic bool has_nodes; /* a node that makes memory was seen; for good; any thread */

/* Counts a node that makes memory. Builds the device's stack first, which is to be charged: there may be none yet. */
static void node_made(const void *caller)
{
    (void)exec_device_here();
    exec_passed_called(EXEC_GRAPH, caller);
    if (exec_settings_now.counts)
        atomic_store_explicit(&has_nodes, true, memory_order_release);
}

CUresult exec_graph_memory_captured(CUresult result, const void *caller)
{
    if (result == CUDA_SUCCESS)
        node_made(caller);
    return result;
}

static void look_at(exec_device *device)
{
    cuuint64_t reserved = 0;
    if (EXEC_CALL(cuDeviceGetGraphMemAttribute, device->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
        CUDA_SUCCESS)
        exec_passed_set(device, EXEC_GRAPH, reserved);
}

/* Looks at what the driver holds for each device after a successful call: a graph may have nodes of several devices. */
static CUresult changed(CUresult result)
{
    exec_device *device;
    if (result != CUDA_SUCCESS || !atomic_load_explicit(&has_nodes, memory_order_acquire))
        return result;
    for (size_t i = 0; (device = exec_device_next(&i));)
        look_at(device);
    return result;
}

/* ---- nodes ---- */

EXEC_EXPORT CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                                    size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    const CUresult result = EXEC_CALL(cuGraphAddMemAllocNode, node, graph, dependencies, count, params);
    if (result == CUDA_SUCCESS)
        node_made(EXEC_CALLER);
    return result;
}

static CUresult added(CUresult result, const CUgraphNodeParams *params, const void *caller)
{
    if (result == CUDA_SUCCESS && params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        node_made(caller);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                            size_t count, CUgraphNodeParams *params)
{
    return added(EXEC_CALL(cuGraphAddNode, node, graph, dependencies, count, params), params, EXEC_CALLER);
}

EXEC_EXPORT CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                               const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    return added(EXEC_CALL(cuGraphAddNode_v2, node, graph, dependencies, edges, count, params), params, EXEC_CALLER);
}

/* ---- launches and trims ---- */

typedef CUresult submit_graph(CUgraphExec graph, CUstream stream);

/* A graph may have nodes of several devices. */
static bool make_room(void)
{
    exec_device *device;
    bool made = false;
    for (size_t i = 0; (device = exec_device_next(&i));)
        made |= exec_make_room(&(exec_here){.device = device});
    return made;
}

static CUresult submit(submit_graph *real, CUgraphExec graph, CUstream stream)
{
    CUresult result = real ? real(graph, stream) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && make_room())
        result = real(graph, stream);
    return changed(result);
}

#define GRAPH_HOOK(name)                                                  \
    EXEC_EXPORT CUresult CUDAAPI name(CUgraphExec graph, CUstream stream) \
    {                                                                     \
        return submit(EXEC_REAL(name), graph, stream);                    \
    }

GRAPH_HOOK(cuGraphLaunch)
GRAPH_HOOK(cuGraphLaunch_ptsz)
GRAPH_HOOK(cuGraphUpload)
GRAPH_HOOK(cuGraphUpload_ptsz)

EXEC_EXPORT CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device)
{
    return changed(EXEC_CALL(cuDeviceGraphMemTrim, device));
}

EXEC_EXPORT CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    return EXEC_CALL(cuDeviceGetGraphMemAttribute, device, attribute, value);
}
