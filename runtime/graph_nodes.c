/* Sets of graph nodes, and the places of streams in captures. */
#include "runtime/graph_nodes.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"

#include <string.h>

/* ---- sets ---- */

enum { FEW = sizeof((strata_nodes *)0)->few / sizeof(CUgraphNode) };

bool strata_nodes_has(const strata_nodes *nodes, CUgraphNode node)
{
    const CUgraphNode *items = strata_nodes_items(nodes);
    for (size_t i = 0; i < nodes->count; i++)
        if (items[i] == node)
            return true;
    return false;
}

static bool reserve(strata_nodes *nodes, size_t wanted)
{
    const size_t room = nodes->items ? nodes->room : FEW;
    if (wanted <= room)
        return true;
    CUgraphNode *items = strata_host_zalloc(2 * wanted * sizeof *items);
    if (!items)
        return false;
    memcpy(items, strata_nodes_items(nodes), nodes->count * sizeof *items);
    strata_host_free(nodes->items);
    nodes->items = items;
    nodes->room = 2 * wanted;
    return true;
}

bool strata_nodes_push(strata_nodes *nodes, CUgraphNode node)
{
    if (!reserve(nodes, nodes->count + 1))
        return false;
    (nodes->items ? nodes->items : nodes->few)[nodes->count++] = node;
    return true;
}

bool strata_nodes_add_missing(strata_nodes *nodes, const CUgraphNode *added, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strata_nodes_has(nodes, added[i]) && !strata_nodes_push(nodes, added[i]))
            return false;
    return true;
}

void strata_nodes_free_items(strata_nodes *nodes)
{
    strata_host_free(nodes->items);
    nodes->items = NULL;
    nodes->count = nodes->room = 0;
}

/* ---- fronts ---- */

static strata_status refuse_ask(CUresult result, strata_capture_front *front)
{
    *front = (strata_capture_front){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    return strata_fail_driver(result, "cuStreamGetCaptureInfo", "looking for a stream's capture%s",
                              strata_stream_hint(result));
}

/* The calling thread's default stream: it needs the context. */
static __attribute__((noinline)) strata_status ask_default(strata_device *device, CUstream stream,
                                                           strata_capture_front *front)
{
    const unsigned needs = strata_call_scope_for(stream);
    if (needs & STRATA_CALL_SCOPE_LEGACY)
        return STRATA_SUCCESS; /* the legacy stream is never captured */
    strata_call_scope scope;
    const strata_status status = strata_call_scope_enter(&scope, device, needs);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result =
        strata_cu.StreamGetCaptureInfo(stream, &front->status, &front->id, &front->graph, &front->nodes, &front->count);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS : refuse_ask(result, front);
}

strata_status strata_capture_ask(strata_device *device, CUstream stream, strata_capture_front *front)
{
    *front = (strata_capture_front){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    if (!strata_cu.StreamGetCaptureInfo)
        return STRATA_SUCCESS;
    if (strata_call_scope_for(stream))
        return ask_default(device, stream, front);
    const strata_status status = strata_check_device_now(device);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result =
        strata_cu.StreamGetCaptureInfo(stream, &front->status, &front->id, &front->graph, &front->nodes, &front->count);
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? STRATA_SUCCESS : refuse_ask(result, front);
}
