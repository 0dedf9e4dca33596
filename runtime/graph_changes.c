/* Changing what a graph does: by another capture, and node by node. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/graph_events.h"

/* PTDS programs see macros of these names. */
#undef strata_graph_update
#undef strata_capture_last_node

/* ---- by another capture ---- */

typedef struct update {
    strata_graph *graph;
    strata_graph_update_info info;
    strata_graph **instead; /* or NULL */
} update;

static strata_status check_pool(strata_capture *capture, void *data)
{
    const update *self = data;
    strata_captures_lock(&capture->runtime->captures);
    const bool differs = capture->pool != self->graph->pool;
    const bool other = differs && strata_capture_took_memory(&capture->uses, capture->pool);
    const bool kept = !differs || other || capture->made_pool || /* what is recorded with it stays for the graph */
                      strata_capture_add_part(&capture->uses, capture->pool);
    strata_captures_unlock(&capture->runtime->captures);
    if (!kept)
        return strata_fail_host_memory("the pool of a capture");
    return other ? strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "strata_graph_update: the capture took memory of another pool than the graph's; begin "
                               "it with strata_graph_pool(graph)")
                 : STRATA_SUCCESS;
}

static strata_graph_update_result result_of(CUgraphExecUpdateResult result)
{
    if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return STRATA_GRAPH_UPDATED;
    return result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED ? STRATA_GRAPH_TOPOLOGY_CHANGED
                                                                 : STRATA_GRAPH_NODE_REFUSED;
}

/* The launches' lock is held. */
static strata_status replace(update *self, CUgraph graph)
{
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    strata_call_scope scope;
    const strata_status status = strata_call_scope_enter(&scope, self->graph->runtime->device,
                                                         STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.GraphExecUpdate(self->graph->exec, graph, &info);
    strata_call_scope_leave(&scope);
    self->info.driver_result = info.result;
    self->info.result = result == CUDA_SUCCESS ? STRATA_GRAPH_UPDATED : result_of(info.result);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    if (self->info.result == STRATA_GRAPH_UPDATED) /* the call failed, not the comparison */
        self->info.result = STRATA_GRAPH_NODE_REFUSED;
    self->info.node = info.errorNode;
    self->info.type = strata_graph_node_type(info.errorNode);
    return strata_fail_driver(result, "cuGraphExecUpdate", "updating a graph of %zu nodes: %s (node %p, type %s)",
                              self->graph->nodes,
                              self->info.result == STRATA_GRAPH_TOPOLOGY_CHANGED
                                  ? "the topology changed"
                                  : "a node changed in a way that an executable graph cannot take",
                              (void *)self->info.node, self->info.type);
}

/* Makes a graph that refuses frees refuse those of its new blocks. */
static void refuse_frees(const strata_graph *graph)
{
    strata_captures *captures = &graph->runtime->captures;
    strata_captures_lock(captures);
    for (size_t i = 0; i < graph->uses.count; i++)
        if (graph->uses.items[i].kind == STRATA_CAPTURE_OUTSIDE)
            strata_kept_refuse(&captures->kept, &graph->uses.items[i].block, true);
    strata_captures_unlock(captures);
}

static void take_graph(strata_graph *graph, strata_capture *capture)
{
    if (graph->latest != graph->graph)
        strata_cu.GraphDestroy(graph->latest);
    graph->latest = capture->graph;
    graph->changed = false;
    capture->graph = NULL;
}

/* Refuses conditional nodes: no document says which conditions the executable graph would read after an update. */
static strata_status check_conditionals(const strata_graph *graph, const strata_capture *capture)
{
    return graph->conditionals || capture->conditionals
               ? strata_fail(STRATA_ERROR_UNSUPPORTED,
                             "strata_graph_update: the %s has conditional nodes; make a new graph of the capture",
                             graph->conditionals ? "graph" : "capture")
               : STRATA_SUCCESS;
}

static strata_status put(strata_capture *capture, void *data)
{
    update *self = data;
    strata_graph *graph = self->graph;
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&graph->pool->launches);
    strata_status status = check_conditionals(graph, capture);
    if (status == STRATA_SUCCESS)
        status = replace(self, capture->graph);
    const bool refusing = graph->refusing;
    strata_capture_uses old = graph->uses;
    if (status == STRATA_SUCCESS) {
        strata_graph_take_uses(graph, &capture->uses);
        take_graph(graph, capture);
        if (refusing)
            refuse_frees(graph);
    }
    strata_lock_release(&graph->pool->launches);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (status == STRATA_SUCCESS) {
        strata_error_suppress_begin(); /* what cannot be freed now is tried again by other calls */
        strata_capture_uses_drop(graph->runtime, &old, refusing);
        strata_error_suppress_end(false);
        return STRATA_SUCCESS;
    }
    if (self->instead)
        strata_graph_make(capture, self->instead);
    return status;
}

strata_status strata_graph_update(strata_graph *graph, CUstream stream, strata_graph_update_info *info,
                                  strata_graph **instead)
{
    update self = {.graph = graph,
                   .info = {.result = STRATA_GRAPH_NODE_REFUSED, .driver_result = CU_GRAPH_EXEC_UPDATE_ERROR},
                   .instead = instead};
    if (instead)
        *instead = NULL;
    strata_status status = strata_graph_check_call(graph, "strata_graph_update", STRATA_GRAPH_EVENT_UPDATE, stream);
    if (status == STRATA_SUCCESS) {
        status =
            strata_cu.GraphExecUpdate
                ? strata_capture_end_as(graph->runtime, stream, STRATA_GRAPH_EVENT_UPDATE, check_pool, put, &self)
                : strata_fail(STRATA_ERROR_UNSUPPORTED, "strata_graph_update: the driver has no cuGraphExecUpdate");
        strata_graph_tell(graph, STRATA_GRAPH_EVENT_UPDATE, stream, status);
    }
    if (info)
        *info = self.info;
    return status;
}

/* ---- nodes ---- */

strata_status strata_capture_last_node(strata_runtime *runtime, CUstream stream, CUgraphNode *out)
{
    strata_capture_front front;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_last_node: out is NULL");
    *out = NULL;
    strata_status status = strata_check_runtime(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_capture_ask(runtime->device, stream, &front);
    if (status != STRATA_SUCCESS)
        return status;
    if (front.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_last_node: the stream is not being captured");
    if (front.count != 1)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_capture_last_node: the stream's next work depends on %zu nodes", front.count);
    *out = front.nodes[0];
    return STRATA_SUCCESS;
}

static strata_status find_node(const strata_graph *graph, size_t index, CUgraphNode *node, CUgraphNodeType *type)
{
    size_t count = graph->nodes;
    CUgraphNode *nodes = strata_host_zalloc((count + 1) * sizeof *nodes);
    if (!nodes)
        return strata_fail_host_memory("a graph's nodes");
    CUresult result = strata_cu.GraphGetNodes(graph->graph, nodes, &count);
    if (result == CUDA_SUCCESS && index < count) {
        *node = nodes[index];
        result = type ? strata_cu.GraphNodeGetType(*node, type) : CUDA_SUCCESS;
    }
    strata_host_free(nodes);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuGraphGetNodes", "looking for node %zu", index);
}

strata_status strata_graph_node_at(const strata_graph *graph, size_t index, CUgraphNode *node, CUgraphNodeType *type)
{
    const strata_status status = strata_graph_check(graph, "strata_graph_node_at");
    if (status != STRATA_SUCCESS)
        return status;
    if (!node)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_graph_node_at: node is NULL");
    *node = NULL;
    if (index >= graph->nodes)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_graph_node_at: the graph has %zu nodes, not %zu",
                           graph->nodes, index + 1);
    if (type && !strata_cu.GraphNodeGetType)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "strata_graph_node_at: the driver has no cuGraphNodeGetType");
    return find_node(graph, index, node, type);
}

/* ---- parameters ---- */

/* One change; with one member set. */
typedef struct change {
    const CUDA_KERNEL_NODE_PARAMS *kernel;
    const CUDA_MEMCPY3D *copy;
    const CUDA_MEMSET_NODE_PARAMS *fill;
} change;

/* Keeps a block that the graph does not use yet. The captures' lock is held. */
static strata_status keep(strata_graph *graph, const strata_graph_block *named, strata_capture_uses *added)
{
    strata_captures *captures = &graph->runtime->captures;
    if (strata_kept_is_freed(&captures->kept, named->block->id))
        return strata_block_refuse(graph->runtime->table, named->block, STRATA_ERROR_USE_AFTER_FREE);
    if (strata_capture_find_use(&graph->uses, named->block->id) || strata_capture_find_use(added, named->block->id))
        return STRATA_SUCCESS;
    const strata_status status = strata_kept_add(&captures->kept, graph->runtime->table, named->block);
    if (status != STRATA_SUCCESS)
        return status;
    if (!strata_capture_add_use(added, named->block, STRATA_CAPTURE_OUTSIDE)) {
        strata_kept_drop(&captures->kept, graph->runtime->table, named->block);
        return strata_fail_host_memory("a block of a graph");
    }
    if (graph->refusing)
        strata_kept_refuse(&captures->kept, named->block, true);
    return STRATA_SUCCESS;
}

/* Keeps all blocks that the graph does not use yet, and makes room for them in it. After an error the caller drops what
 * was added. */
static strata_status keep_all(strata_graph *graph, const strata_graph_block *blocks, size_t count,
                              strata_capture_uses *added)
{
    strata_spin *lock = &graph->runtime->captures.lock;
    strata_error_suppress_begin();
    strata_spin_take(lock);
    strata_status status = strata_capture_reserve_uses(&graph->uses, count)
                               ? STRATA_SUCCESS
                               : strata_fail_host_memory("the blocks of a graph");
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status = keep(graph, &blocks[i], added);
    strata_spin_release(lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

static void take_added(strata_graph *graph, const strata_graph_block *blocks, size_t count, strata_capture_uses *added)
{
    for (size_t i = 0; i < added->count; i++)
        graph->uses.items[graph->uses.count++] = added->items[i];
    added->count = 0;
    for (size_t i = 0; i < count; i++) {
        strata_capture_use *use = strata_capture_find_use(&graph->uses, blocks[i].block->id);
        use->access = (strata_access)(use->access | blocks[i].access);
    }
    graph->listed.listed = false;
    graph->changed = true;
}

static strata_status set(strata_graph *graph, CUgraphNode node, const change *to)
{
    CUcontext context = graph->runtime->device->context;
    strata_call_scope scope;
    const strata_status status =
        strata_call_scope_enter(&scope, graph->runtime->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = to->kernel ? strata_cu.GraphExecKernelNodeSetParams(graph->exec, node, to->kernel)
                            : to->copy ? strata_cu.GraphExecMemcpyNodeSetParams(graph->exec, node, to->copy, context)
                                       : strata_cu.GraphExecMemsetNodeSetParams(graph->exec, node, to->fill, context);
    strata_call_scope_leave(&scope);
    const char *call = to->kernel ? "cuGraphExecKernelNodeSetParams"
                       : to->copy ? "cuGraphExecMemcpyNodeSetParams"
                                  : "cuGraphExecMemsetNodeSetParams";
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, call, "changing node %p, type %s", (void *)node,
                                                       strata_graph_node_type(node));
}

static strata_status check_change(const strata_graph *graph, CUgraphNode node, const change *to,
                                  const strata_graph_block *blocks, size_t count, const char *call)
{
    const strata_status status = strata_graph_check(graph, call);
    if (status != STRATA_SUCCESS)
        return status;
    if (!node || (!to->kernel && !to->copy && !to->fill) || (count && !blocks))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: node, parameters or blocks are NULL", call);
    for (size_t i = 0; i < count; i++)
        if (!blocks[i].block || (unsigned)blocks[i].access - 1 > STRATA_ACCESS_READ_WRITE - 1)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: block %zu is NULL, or its access is invalid", call, i);
    if (!strata_cu.GraphExecKernelNodeSetParams || !strata_cu.GraphExecMemcpyNodeSetParams ||
        !strata_cu.GraphExecMemsetNodeSetParams)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "%s: the driver cannot change a node", call);
    return STRATA_SUCCESS;
}

/* The blocks are kept before the change, so that no launch comes between. */
static strata_status change_node(strata_graph *graph, CUgraphNode node, const change *to,
                                 const strata_graph_block *blocks, size_t count, const char *call)
{
    strata_status status = check_change(graph, node, to, blocks, count, call);
    if (status != STRATA_SUCCESS)
        return status;
    strata_capture_uses added = {0};
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&graph->pool->launches);
    status = keep_all(graph, blocks, count, &added);
    if (status == STRATA_SUCCESS)
        status = set(graph, node, to);
    if (status == STRATA_SUCCESS)
        take_added(graph, blocks, count, &added);
    const bool refusing = graph->refusing;
    strata_lock_release(&graph->pool->launches);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    strata_error_suppress_begin(); /* what was freed meanwhile and cannot be freed now is tried again by other calls */
    strata_capture_uses_drop(graph->runtime, &added, refusing);
    strata_error_suppress_end(false);
    return status;
}

strata_status strata_graph_set_kernel(strata_graph *graph, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel,
                                      const strata_graph_block *blocks, size_t count)
{
    return change_node(graph, node, &(change){.kernel = kernel}, blocks, count, "strata_graph_set_kernel");
}

strata_status strata_graph_set_copy(strata_graph *graph, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                    const strata_graph_block *blocks, size_t count)
{
    return change_node(graph, node, &(change){.copy = copy}, blocks, count, "strata_graph_set_copy");
}

strata_status strata_graph_set_fill(strata_graph *graph, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill,
                                    const strata_graph_block *blocks, size_t count)
{
    return change_node(graph, node, &(change){.fill = fill}, blocks, count, "strata_graph_set_fill");
}
