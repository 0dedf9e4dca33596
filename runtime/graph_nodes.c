/* Sets of graph nodes. */
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

bool strata_nodes_add(strata_nodes *nodes, const CUgraphNode *added, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strata_nodes_has(nodes, added[i]))
            continue;
        if (!reserve(nodes, nodes->count + 1))
            return false;
        (nodes->items ? nodes->items : nodes->few)[nodes->count++] = added[i];
    }
    return true;
}

void strata_nodes_free_items(strata_nodes *nodes)
{
    strata_host_free(nodes->items);
    nodes->items = NULL;
    nodes->count = nodes->room = 0;
}

/* ---- fronts ---- */

strata_status strata_capture_ask(strata_device *device, CUstream stream, strata_capture_front *front)
{
    *front = (strata_capture_front){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    const unsigned needs = strata_call_scope_for(stream);
    if (!strata_cu.StreamGetCaptureInfo || needs & STRATA_CALL_SCOPE_LEGACY)
        return STRATA_SUCCESS; /* the legacy stream is never captured */
    strata_call_scope scope;
    const strata_status status = strata_call_scope_enter(&scope, device, needs);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result =
        strata_cu.StreamGetCaptureInfo(stream, &front->status, &front->id, &front->graph, &front->nodes, &front->count);
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    *front = (strata_capture_front){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    return strata_fail_driver(result, "cuStreamGetCaptureInfo", "looking for a stream's capture%s",
                              strata_stream_hint(result));
}

/* ---- ancestors ---- */

static size_t bucket_of(const strata_ancestors *ancestors, CUgraphNode node)
{
    size_t at = (uintptr_t)node * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    while (ancestors->table[at & ancestors->mask] && ancestors->table[at & ancestors->mask] != node)
        at++;
    return at & ancestors->mask;
}

static bool grow(strata_ancestors *ancestors)
{
    const size_t buckets = ancestors->table ? 2 * (ancestors->mask + 1) : 64;
    strata_ancestors larger = *ancestors;
    larger.table = strata_host_zalloc(buckets * sizeof *larger.table);
    larger.mask = buckets - 1;
    if (!larger.table)
        return false;
    for (size_t i = 0; ancestors->table && i <= ancestors->mask; i++)
        if (ancestors->table[i])
            larger.table[bucket_of(&larger, ancestors->table[i])] = ancestors->table[i];
    strata_host_free(ancestors->table);
    *ancestors = larger;
    return true;
}

/* *fresh: it was not there. False without host memory. */
static bool insert(strata_ancestors *ancestors, CUgraphNode node, bool *fresh)
{
    if ((!ancestors->table || 2 * ancestors->count > ancestors->mask) && !grow(ancestors))
        return false;
    CUgraphNode *bucket = &ancestors->table[bucket_of(ancestors, node)];
    *fresh = !*bucket;
    ancestors->count += *fresh;
    *bucket = node;
    return true;
}

/* Adds the nodes that are new to the ancestors, and to `next`, whose dependencies are still to be asked for. */
static bool visit(strata_ancestors *ancestors, const CUgraphNode *nodes, size_t count, strata_nodes *next)
{
    for (size_t i = 0; i < count; i++) {
        bool fresh;
        if (!insert(ancestors, nodes[i], &fresh))
            return false;
        if (!fresh)
            continue;
        if (!reserve(next, next->count + 1))
            return false;
        (next->items ? next->items : next->few)[next->count++] = nodes[i];
    }
    return true;
}

static bool visit_dependencies(strata_ancestors *ancestors, CUgraphNode node, strata_nodes *next)
{
    CUgraphNode few[16], *nodes = few;
    size_t count = 0;
    if (strata_cu.GraphNodeGetDependencies(node, NULL, &count) != CUDA_SUCCESS)
        return false;
    if (count > sizeof few / sizeof few[0] && !(nodes = strata_host_zalloc(count * sizeof *nodes)))
        return false;
    const bool visited = (count == 0 || strata_cu.GraphNodeGetDependencies(node, nodes, &count) == CUDA_SUCCESS) &&
                         visit(ancestors, nodes, count, next);
    if (nodes != few)
        strata_host_free(nodes);
    return visited;
}

static void walk(strata_ancestors *ancestors)
{
    strata_nodes next = {0};
    bool known = strata_cu.GraphNodeGetDependencies != NULL && grow(ancestors) &&
                 visit(ancestors, ancestors->front->nodes, ancestors->front->count, &next);
    while (known && next.count)
        known = visit_dependencies(ancestors, strata_nodes_items(&next)[--next.count], &next);
    ancestors->failed = !known;
    strata_nodes_free(&next);
}

bool strata_ancestors_have(strata_ancestors *ancestors, CUgraphNode node)
{
    if (!ancestors->table && !ancestors->failed)
        walk(ancestors);
    return ancestors->table && ancestors->table[bucket_of(ancestors, node)] == node;
}

void strata_ancestors_free(strata_ancestors *ancestors)
{
    strata_host_free(ancestors->table);
    ancestors->table = NULL;
}
