/* Updates of an executable graph: one node's parameters, or all from a graph of the same shape.
 *
 * Same shape: nodes pair up so that pairs agree in kind and depend on pairs. As in the driver, pairs are not searched
 * for: they follow the order in which leaves became leaves and dependencies were added, leaves first. */
#include "graph/graph.h"
#include <stdlib.h>

sim_exec_node *sim_exec_find_node(CUgraphExec exec, CUgraphNode node)
{
    for (size_t i = 0; i < exec->count; i++)
        if (exec->nodes[i].node == node && sim_node_valid(node) && node->id == exec->nodes[i].id)
            return &exec->nodes[i];
    return NULL;
}

/* ---- what may change ---- */

/* Whether a fill may become the other. One of one row may change its size, one of several may not. */
static bool fill_compatible(const sim_op *old, const sim_op *other)
{
    if (old->context != other->context)
        return false;
    if (old->work.fill.rows == 1 && other->work.fill.rows == 1)
        return true;
    return old->work.fill.rows == other->work.fill.rows && old->work.fill.count == other->work.fill.count &&
           old->work.fill.width == other->work.fill.width;
}

static bool is_host(const sim_place *place)
{
    const sim_block *block = sim_block_at(place->address);
    return place->pageable || (block && sim_block_is_host(block));
}

static const sim_place *from_of(const sim_op *copy)
{
    return copy->kind == SIM_OP_COPY ? &copy->work.copy.from : &copy->work.rows.from.place;
}

static const sim_place *to_of(const sim_op *copy)
{
    return copy->kind == SIM_OP_COPY ? &copy->work.copy.to : &copy->work.rows.to.place;
}

/* Whether a copy may become the other: it keeps its kinds of memory. */
static bool copy_compatible(const sim_op *old, const sim_op *other)
{
    return old->context == other->context && is_host(from_of(old)) == is_host(from_of(other)) &&
           is_host(to_of(old)) == is_host(to_of(other));
}

bool sim_exec_compatible(const sim_op *old, const sim_op *other)
{
    switch (old->kind) {
    case SIM_OP_FILL:
        return fill_compatible(old, other);
    case SIM_OP_COPY:
    case SIM_OP_COPY_ROWS:
        return copy_compatible(old, other);
    case SIM_OP_KERNEL:
        return old->context == other->context;
    default:
        return true;
    }
}

/* ---- all nodes ---- */

/* The pairing of an executable graph's nodes with a graph's. */
typedef struct node_pairs {
    CUgraphExec exec;
    CUgraphNode *partner; /* by place in the executable graph: the node that is paired, or NULL */
    size_t *to_do;        /* places whose dependencies are to be paired, each once */
    size_t to_do_count;
    CUgraphExecUpdateResultInfo info;
} node_pairs;

static bool differ(node_pairs *pairs, CUgraphExecUpdateResult why, CUgraphNode node)
{
    pairs->info.result = why;
    pairs->info.errorNode = node;
    return false;
}

static bool pair(node_pairs *pairs, size_t place, CUgraphNode node)
{
    const sim_exec_node *old = &pairs->exec->nodes[place];
    if (pairs->partner[place] == node)
        return true;
    if (pairs->partner[place] || old->after_count != node->after.count)
        return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node);
    if (old->type != node->type)
        return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, node);
    pairs->partner[place] = node;
    pairs->to_do[pairs->to_do_count++] = place;
    return true;
}

/* Pairs dependencies until nothing is new. */
static bool pair_before(node_pairs *pairs)
{
    while (pairs->to_do_count > 0) {
        size_t place = pairs->to_do[--pairs->to_do_count];
        const sim_exec_node *old = &pairs->exec->nodes[place];
        for (size_t i = 0; i < old->after_count; i++)
            if (!pair(pairs, old->after[i], pairs->partner[place]->after.at[i]))
                return false;
    }
    return true;
}

static bool pair_all(node_pairs *pairs, CUgraph graph)
{
    CUgraphExec exec = pairs->exec;
    if (exec->count != graph->count || exec->leaf_count > graph->leaves.count)
        return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL);
    if (exec->leaf_count < graph->leaves.count) {
        CUgraphNode extra = graph->leaves.at[graph->leaves.count - 1];
        return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, extra);
    }
    for (size_t i = exec->leaf_count; i > 0; i--)
        if (!pair(pairs, exec->leaves[i - 1], graph->leaves.at[i - 1]) || !pair_before(pairs))
            return false;
    return true;
}

static void pairs_close(node_pairs *pairs)
{
    free(pairs->partner);
    free(pairs->to_do);
}

static bool pairs_open(node_pairs *pairs, CUgraphExec exec)
{
    *pairs = (node_pairs){
        .exec = exec,
        .partner = calloc(exec->count + 1, sizeof(CUgraphNode)),
        .to_do = calloc(exec->count + 1, sizeof(size_t)),
    };
    if (!pairs->partner || !pairs->to_do) {
        pairs_close(pairs);
        return false;
    }
    return true;
}

/* A conditional node keeps its form; its condition is replaced. */
static bool branches_compatible(const sim_exec_node *old, const sim_branches *other)
{
    return old->body_count == other->count &&
           (other->count == 0 || (old->form == other->type && old->condition->context == other->condition->context));
}

/* Whether each node may become its partner. Any memory may be replaced by other. */
static bool may_replace(node_pairs *pairs)
{
    for (size_t i = 0; i < pairs->exec->count; i++) {
        const sim_exec_node *old = &pairs->exec->nodes[i];
        CUgraphNode other = pairs->partner[i];
        if (!branches_compatible(old, &other->branches))
            return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, other);
        if (!sim_exec_compatible(&old->what, &other->what))
            return differ(pairs, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, other);
    }
    return true;
}

static CUresult replace_bodies(sim_exec_node *old, const sim_branches *other, CUgraphExecUpdateResultInfo *info)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < old->body_count && result == CUDA_SUCCESS; i++)
        result = sim_exec_replace_all(old->bodies[i], other->bodies[i], info);
    if (result != CUDA_SUCCESS)
        return result;
    sim_condition_drop(old->condition);
    old->condition = other->condition;
    old->condition->references++;
    return CUDA_SUCCESS;
}

static CUresult replace(sim_exec_node *old, CUgraphNode other, CUgraphExecUpdateResultInfo *info)
{
    if (old->body_count > 0)
        return replace_bodies(old, &other->branches, info);
    if (old->child)
        return sim_exec_replace_all(old->child, other->child, info);
    if (old->memory)
        sim_exec_take_memory(old, other);
    old->copy = other->copy;
    old->event = other->event;
    old->made = other->made;
    return sim_work_copy(&old->what, &other->what) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_exec_replace_all(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    node_pairs pairs;
    if (!pairs_open(&pairs, exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (pair_all(&pairs, graph) && may_replace(&pairs)) {
        result = CUDA_SUCCESS;
        for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++)
            result = replace(&exec->nodes[i], pairs.partner[i], &pairs.info);
    }
    *info = pairs.info;
    pairs_close(&pairs);
    return result;
}
