/* Graphs, nodes, edges, clones. An edge is in two sets: its target's dependencies, its source's dependents.
 *
 * The driver lists roots and leaves latest first, and pairs nodes by it in an update: a graph keeps both in order of
 * becoming one. */
#include "graph/graph.h"
#include <stdlib.h>

bool sim_graph_valid(CUgraph graph)
{
    return sim_slab_has(&sim_graph.graphs, graph);
}

bool sim_node_valid(CUgraphNode node)
{
    return sim_slab_has(&sim_graph.nodes, node);
}

CUgraph sim_graph_create(void)
{
    CUgraph graph = sim_slab_take(&sim_graph.graphs);
    if (graph)
        graph->id = ++sim_graph.last_id;
    return graph;
}

void sim_graph_free(CUgraph graph)
{
    sim_capture_forget_graph(graph);
    while (graph->last)
        sim_node_free(graph->last);
    sim_nodes_free(&graph->roots);
    sim_nodes_free(&graph->leaves);
    sim_objects_free(&graph->objects);
    sim_conditions_free(graph);
    sim_slab_give(&sim_graph.graphs, graph);
}

/* As in the driver, a graph counts as one with memory from the first call that would add a memory node to it. */
bool sim_graph_has_memory(CUgraph graph)
{
    if (graph->allocates)
        return true;
    for (CUgraphNode node = graph->first; node; node = node->next)
        if (node->child && sim_graph_has_memory(node->child))
            return true;
    return false;
}

bool sim_graph_has_conditionals(CUgraph graph)
{
    for (CUgraphNode node = graph->first; node; node = node->next)
        if (node->branches.count > 0 || (node->child && sim_graph_has_conditionals(node->child)))
            return true;
    return false;
}

/* ---- edges ---- */

bool sim_edge_add(CUgraphNode from, CUgraphNode to)
{
    if (!sim_nodes_reserve(&to->after, to->after.count + 1) ||
        !sim_nodes_reserve(&from->before, from->before.count + 1))
        return false;
    if (to->after.count == 0)
        sim_nodes_remove(&to->graph->roots, to);
    if (from->before.count == 0)
        sim_nodes_remove(&from->graph->leaves, from);
    sim_nodes_add(&to->after, from);
    sim_nodes_add(&from->before, to);
    return true;
}

/* Needs no memory: the graph's sets of roots and leaves have room for every node. */
void sim_edge_remove(CUgraphNode from, CUgraphNode to)
{
    sim_nodes_remove(&to->after, from);
    sim_nodes_remove(&from->before, to);
    if (to->after.count == 0 && !sim_nodes_have(&to->graph->roots, to))
        sim_nodes_add(&to->graph->roots, to);
    if (from->before.count == 0 && !sim_nodes_have(&from->graph->leaves, from))
        sim_nodes_add(&from->graph->leaves, from);
}

CUresult sim_dependencies_check(CUgraph graph, const CUgraphNode *nodes, size_t count)
{
    if (count > 0 && !nodes)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!sim_node_valid(nodes[i]) || nodes[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t k = 0; k < i; k++)
            if (nodes[k] == nodes[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static bool mark_one(sim_nodes *to_do, CUgraphNode node)
{
    if (node->index == 1)
        return true;
    if (!sim_nodes_reserve(to_do, to_do->count + 1))
        return false;
    node->index = 1;
    sim_nodes_add(to_do, node);
    return true;
}

static bool mark_all(sim_nodes *to_do, const sim_nodes *nodes)
{
    bool marked = true;
    for (size_t i = 0; i < nodes->count && marked; i++)
        marked = mark_one(to_do, nodes->at[i]);
    return marked;
}

bool sim_graph_mark(CUgraph graph, const sim_nodes *last)
{
    sim_nodes to_do = {0};
    for (CUgraphNode node = graph->first; node; node = node->next)
        node->index = 0;
    bool marked = mark_all(&to_do, last);
    while (marked && to_do.count > 0)
        marked = mark_all(&to_do, &to_do.at[--to_do.count]->after);
    sim_nodes_free(&to_do);
    return marked;
}

/* ---- nodes ---- */

static void append(CUgraph graph, CUgraphNode node)
{
    node->graph = graph;
    node->previous = graph->last;
    if (graph->last)
        graph->last->next = node;
    else
        graph->first = node;
    graph->last = node;
    graph->count++;
    sim_nodes_add(&graph->roots, node);
    sim_nodes_add(&graph->leaves, node);
}

CUgraphNode sim_node_create(CUgraph graph, CUgraphNodeType type, const CUgraphNode *after, size_t count)
{
    if (!sim_nodes_reserve(&graph->roots, graph->count + 1) || !sim_nodes_reserve(&graph->leaves, graph->count + 1))
        return NULL;
    CUgraphNode node = sim_slab_take(&sim_graph.nodes);
    if (!node)
        return NULL;
    node->id = ++sim_graph.last_id;
    node->type = type;
    node->what.kind = SIM_OP_MARK;
    append(graph, node);
    for (size_t i = 0; i < count; i++) {
        if (!sim_edge_add(after[i], node)) {
            sim_node_free(node);
            return NULL;
        }
    }
    return node;
}

static void unlink_node(CUgraphNode node)
{
    CUgraph graph = node->graph;
    while (node->after.count > 0)
        sim_edge_remove(node->after.at[node->after.count - 1], node);
    while (node->before.count > 0)
        sim_edge_remove(node, node->before.at[node->before.count - 1]);
    sim_nodes_remove(&graph->roots, node);
    sim_nodes_remove(&graph->leaves, node);
    if (node->previous)
        node->previous->next = node->next;
    else
        graph->first = node->next;
    if (node->next)
        node->next->previous = node->previous;
    else
        graph->last = node->previous;
    graph->count--;
}

static void give_up_memory(CUgraphNode node)
{
    sim_graph_memory *memory = node->memory;
    if (memory->freed == node)
        memory->freed = NULL;
    else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        memory->foreign_frees--;
    sim_graph_memory_drop(memory);
}

/* No stream's next captured work depends on it any more. Events may still name it: capture_work.c. */
static void leave_capture(CUgraphNode node)
{
    const sim_capture *capture = node->graph->capture;
    for (sim_queue *queue = capture ? capture->queues : NULL; queue; queue = queue->next_captured)
        sim_nodes_remove(&queue->captured, node);
}

void sim_node_free(CUgraphNode node)
{
    leave_capture(node);
    unlink_node(node);
    sim_nodes_free(&node->after);
    sim_nodes_free(&node->before);
    sim_work_free(&node->what);
    if (node->child)
        sim_graph_free(node->child);
    sim_branches_free(&node->branches);
    if (node->memory)
        give_up_memory(node);
    sim_slab_give(&sim_graph.nodes, node);
}

bool sim_work_copy(sim_op *to, const sim_op *from)
{
    sim_op made = {.kind = from->kind, .context = from->context, .work = from->work};
    if (from->kind == SIM_OP_KERNEL) {
        made.work.kernel = sim_kernel_copy(from->work.kernel);
        if (!made.work.kernel)
            return false;
    }
    sim_work_free(to);
    *to = made;
    return true;
}

void sim_work_free(sim_op *what)
{
    sim_op_discard(what);
    what->kind = SIM_OP_MARK;
}

/* ---- clones ---- */

/* Numbers the nodes, to find a node's clone: it has the same index. */
static void number(CUgraph graph)
{
    size_t place = 0;
    for (CUgraphNode node = graph->first; node; node = node->next)
        node->index = place++;
}

static CUresult copy_node(CUgraphNode node, CUgraph clone, CUgraphNode *copies)
{
    CUgraphNode copy = sim_node_create(clone, node->type, NULL, 0);
    if (!copy || !sim_work_copy(&copy->what, &node->what))
        return CUDA_ERROR_OUT_OF_MEMORY;
    copies[node->index] = copy;
    copy->original = node->id;
    copy->made = node->made;
    copy->copy = node->copy;
    copy->event = node->event;
    if (!node->child)
        return CUDA_SUCCESS;
    CUresult result = sim_graph_clone(node->child, &copy->child);
    if (result == CUDA_SUCCESS)
        copy->child->embedded = true;
    return result;
}

static bool copy_set(sim_nodes *to, const sim_nodes *from, CUgraphNode *copies)
{
    if (!sim_nodes_copy(to, from))
        return false;
    for (size_t i = 0; i < to->count; i++)
        to->at[i] = copies[to->at[i]->index];
    return true;
}

static CUresult copy_edges(CUgraph graph, CUgraph clone, CUgraphNode *copies)
{
    for (CUgraphNode node = graph->first; node; node = node->next) {
        CUgraphNode copy = copies[node->index];
        if (!copy_set(&copy->after, &node->after, copies) || !copy_set(&copy->before, &node->before, copies))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool copied = copy_set(&clone->roots, &graph->roots, copies) && copy_set(&clone->leaves, &graph->leaves, copies);
    return copied ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult copy_all(CUgraph graph, CUgraph clone)
{
    CUgraphNode *copies = calloc(graph->count + 1, sizeof(*copies));
    CUresult result =
        copies && sim_objects_copy(&clone->objects, &graph->objects) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    number(graph);
    for (CUgraphNode node = graph->first; node && result == CUDA_SUCCESS; node = node->next)
        result = copy_node(node, clone, copies);
    if (result == CUDA_SUCCESS)
        result = copy_edges(graph, clone, copies);
    free(copies);
    return result;
}

/* Neither a graph that allocates memory nor one with conditional nodes nor a body of these can be cloned. */
CUresult sim_graph_clone(CUgraph graph, CUgraph *clone)
{
    if (sim_graph_has_memory(graph) || sim_graph_has_conditionals(graph) || graph->body_of)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraph made = sim_graph_create();
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->original = graph->id;
    CUresult result = copy_all(graph, made);
    if (result != CUDA_SUCCESS) {
        sim_graph_free(made);
        return result;
    }
    *clone = made;
    return CUDA_SUCCESS;
}
