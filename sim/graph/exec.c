/* Executable graphs. Instantiation copies what a launch needs: the graph may change or end afterwards.
 *
 * A launch makes an operation that begins it, last in its stream; one for each node, ordered by edges alone; and one
 * that ends it, before later work of the stream. It begins after the end of the previous launch, in any stream. A child
 * graph's nodes also run between two operations of their own. */
#include "graph/graph.h"
#include <stdlib.h>

bool sim_exec_valid(CUgraphExec exec)
{
    return sim_slab_has(&sim_graph.execs, exec);
}

/* ---- creation ---- */

static void free_node(sim_exec_node *node)
{
    sim_work_free(&node->what);
    free(node->after);
    if (node->memory)
        sim_graph_memory_drop(node->memory);
    if (node->child)
        sim_exec_free(node->child);
    for (unsigned i = 0; i < node->body_count; i++)
        sim_exec_free(node->bodies[i]);
    free(node->bodies);
    sim_condition_drop(node->condition);
}

static void forget_graph(const struct CUgraphExec_st *exec)
{
    if (sim_graph_valid(exec->graph) && exec->graph->id == exec->graph_id && exec->graph->only_exec == exec)
        exec->graph->only_exec = NULL;
}

/* Makes it the one executable graph of a graph with memory, and no longer that of another. */
static void belong(CUgraphExec exec, CUgraph graph)
{
    forget_graph(exec);
    exec->graph = graph;
    exec->graph_id = graph->id;
    graph->only_exec = exec;
}

void sim_exec_free(CUgraphExec exec)
{
    forget_graph(exec);
    for (size_t i = 0; i < exec->count; i++)
        free_node(&exec->nodes[i]);
    free(exec->nodes);
    free(exec->order);
    free(exec->leaves);
    sim_op_drop(exec->last);
    sim_objects_free(&exec->objects);
    sim_slab_give(&sim_graph.execs, exec);
}

/* Whether the first byte of a fill's target is known; a captured fill was not checked before. */
static bool captured_fill_good(const sim_op *what)
{
    uint64_t address = what->work.fill.address;
    return what->kind != SIM_OP_FILL || sim_block_at(address) || sim_graph_memory_around(address, 1);
}

void sim_exec_take_memory(sim_exec_node *to, CUgraphNode node)
{
    sim_graph_memory *memory = node->memory;
    sim_graph_memory_hold(memory);
    if (to->memory)
        sim_graph_memory_drop(to->memory);
    to->memory = memory;
    to->freed_here = memory->freed != NULL;
    to->own = memory->graph == node->graph->id;
    if (to->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !to->freed_here)
        memory->outlives = true;
}

/* Makes executable copies of a node's bodies. After a failure *wrong is the node of a body that cannot run there. */
static CUresult copy_bodies(sim_exec_node *made, const sim_branches *branches, CUgraphNode *wrong)
{
    made->bodies = calloc(branches->count, sizeof(*made->bodies));
    if (!made->bodies)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->condition = branches->condition;
    made->condition->references++;
    made->form = branches->type;
    for (unsigned i = 0; i < branches->count; i++) {
        CUgraph body = branches->bodies[i];
        if (body->capture)
            return CUDA_ERROR_INVALID_VALUE;
        if (!sim_body_good(body, branches->condition->context, wrong))
            return CUDA_ERROR_INVALID_VALUE;
        CUresult result = sim_exec_create(body, 0, &made->bodies[i], wrong);
        if (result != CUDA_SUCCESS)
            return result;
        made->bodies[i]->embedded = true;
        made->body_count++;
    }
    return CUDA_SUCCESS;
}

static CUresult copy_node(sim_exec_node *made, CUgraphNode node, CUgraphNode *wrong_inside)
{
    if (!captured_fill_good(&node->what))
        return CUDA_ERROR_INVALID_VALUE;
    made->what.kind = SIM_OP_MARK;
    if (!sim_work_copy(&made->what, &node->what))
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->node = node;
    made->id = node->id;
    made->type = node->type;
    made->made = node->made;
    made->enabled = true;
    made->copy = node->copy;
    made->event = node->event;
    made->before_count = node->before.count;
    if (node->memory)
        sim_exec_take_memory(made, node);
    made->after = calloc(node->after.count + 1, sizeof(*made->after));
    if (!made->after)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->after_count = node->after.count;
    for (size_t i = 0; i < node->after.count; i++)
        made->after[i] = node->after.at[i]->index;
    if (node->branches.count > 0)
        return copy_bodies(made, &node->branches, wrong_inside);
    if (!node->child)
        return CUDA_SUCCESS;
    CUgraphNode wrong;
    CUresult result = sim_exec_create(node->child, 0, &made->child, &wrong);
    if (result == CUDA_SUCCESS)
        made->child->embedded = true;
    return result;
}

/* Sorts topologically. */
static CUresult sort(struct CUgraphExec_st *exec, CUgraph graph)
{
    size_t *missing = calloc(graph->count + 1, sizeof(*missing));
    if (!missing)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t placed = 0;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        missing[node->index] = node->after.count;
        if (node->after.count == 0)
            exec->order[placed++] = node->index;
    }
    for (size_t i = 0; i < placed; i++) {
        const sim_nodes *before = &exec->nodes[exec->order[i]].node->before;
        for (size_t k = 0; k < before->count; k++)
            if (--missing[before->at[k]->index] == 0)
                exec->order[placed++] = before->at[k]->index;
    }
    for (CUgraphNode node = graph->first; node && !exec->wrong; node = node->next)
        exec->wrong = missing[node->index] > 0 ? node : NULL; /* in a cycle, or after one */
    free(missing);
    return exec->wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult fill(CUgraphExec exec, CUgraph graph)
{
    exec->nodes = calloc(graph->count + 1, sizeof(*exec->nodes));
    exec->order = calloc(graph->count + 1, sizeof(*exec->order));
    exec->leaves = calloc(graph->leaves.count + 1, sizeof(*exec->leaves));
    if (!exec->nodes || !exec->order || !exec->leaves || !sim_objects_copy(&exec->objects, &graph->objects))
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t place = 0;
    for (CUgraphNode node = graph->first; node; node = node->next)
        node->index = place++;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        exec->count++;
        CUresult result = copy_node(&exec->nodes[node->index], node, &exec->wrong);
        if (result != CUDA_SUCCESS)
            return result;
    }
    exec->leaf_count = graph->leaves.count;
    for (size_t i = 0; i < graph->leaves.count; i++)
        exec->leaves[i] = graph->leaves.at[i]->index;
    return sort(exec, graph);
}

CUresult sim_exec_create(CUgraph graph, unsigned long long flags, CUgraphExec *exec, CUgraphNode *wrong)
{
    *wrong = NULL;
    bool only = sim_graph_has_memory(graph) || sim_graph_has_conditionals(graph);
    if (only && graph->only_exec)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphExec made = sim_slab_take(&sim_graph.execs);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->flags = flags;
    made->graph = graph;
    made->graph_id = graph->id;
    CUresult result = fill(made, graph);
    if (result != CUDA_SUCCESS) {
        *wrong = made->wrong;
        sim_exec_free(made);
        return result;
    }
    if (only)
        graph->only_exec = made;
    *exec = made;
    return CUDA_SUCCESS;
}

CUresult sim_exec_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    bool only = sim_graph_has_memory(graph);
    if (only && graph->only_exec && graph->only_exec != exec)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = sim_exec_replace_all(exec, graph, info);
    if (result == CUDA_SUCCESS && only)
        belong(exec, graph);
    return result;
}

/* ---- launch ---- */

/* Whether the launch's allocations and frees are valid in the order of the nodes. An allocation that an earlier launch
 * left is an error unless launches free it. */
static bool memory_good(const struct CUgraphExec_st *exec)
{
    bool frees = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    for (size_t i = 0; i < exec->count; i++) {
        const sim_exec_node *node = &exec->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->memory->out && !frees)
            return false;
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && !node->own && !node->memory->out)
            return false;
    }
    return true;
}

static bool back_memory(const struct CUgraphExec_st *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        const sim_exec_node *node = &exec->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !sim_graph_memory_back(node->memory))
            return false;
    }
    return true;
}

static bool event_good(const sim_exec_node *node)
{
    return !node->event || sim_slab_has(&sim_order.events, node->event);
}

static CUresult contexts_good(const struct CUgraphExec_st *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        const sim_exec_node *node = &exec->nodes[i];
        CUresult result = CUDA_SUCCESS;
        if (node->what.context) {
            bool valid = sim_context_valid(node->what.context);
            result = valid ? sim_context_check(node->what.context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        if (result == CUDA_SUCCESS && node->child)
            result = contexts_good(node->child);
        for (unsigned k = 0; k < node->body_count && result == CUDA_SUCCESS; k++)
            result = contexts_good(node->bodies[k]);
        if (result == CUDA_SUCCESS && !event_good(node))
            result = CUDA_ERROR_INVALID_HANDLE;
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

/* Counts the operations of a launch, and an upper bound of its edges. */
static void count_launch(const struct CUgraphExec_st *exec, size_t *ops, size_t *edges)
{
    *ops += 2;
    *edges += 3;
    for (size_t i = 0; i < exec->count; i++) {
        const sim_exec_node *node = &exec->nodes[i];
        *ops += 1;
        *edges += node->after_count + 4; /* begin, end, memory or event */
        if (node->child)
            count_launch(node->child, ops, edges);
    }
}

/* Copies what a launch changes of its nodes, before anything is submitted. False without memory. */
static bool copy_works(struct CUgraphExec_st *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        sim_exec_node *node = &exec->nodes[i];
        if (node->child && !copy_works(node->child))
            return false;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
            node->launched = sim_kernel_copy(node->what.work.kernel);
            if (!node->launched)
                return false;
        }
        if (node->body_count > 0) {
            node->instance = sim_conditional_create(node);
            if (!node->instance)
                return false;
        }
    }
    return true;
}

static void drop_works(struct CUgraphExec_st *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        sim_exec_node *node = &exec->nodes[i];
        free(node->launched);
        node->launched = NULL;
        sim_conditional_free(node->instance);
        node->instance = NULL;
        if (node->child)
            drop_works(node->child);
    }
}

typedef struct exec_launch {
    sim_queue *queue;
    sim_context *context;
    uint64_t number;
} exec_launch;

static sim_op *new_op(const exec_launch *launch, sim_context *context, sim_op_kind kind)
{
    sim_op *op = sim_op_create(context ? context : launch->context, NULL, kind, 0);
    op->launched.launch = launch->number;
    op->launched.stream = launch->queue->component->uid;
    op->launched.queue = launch->queue->kind;
    return op;
}

static void record(CUevent event, sim_op *op)
{
    sim_op_drop(event->op);
    sim_nodes_free(&event->captured);
    event->capture = 0;
    event->op = sim_op_hold(op);
    event->polls = 0;
}

static void take_part(sim_exec_node *node, sim_op *op)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        op->work.kernel = node->launched;
        node->launched = NULL;
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        op->kind = SIM_OP_CONDITIONAL;
        op->work.conditional = node->instance;
        node->instance = NULL;
        sim_conditional_submit(op);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        sim_graph_memory_allocated(node->memory, op, !node->freed_here);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        sim_graph_memory_freed(node->memory, op);
        break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        record(node->event, op);
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        sim_op_depend(op, node->event->op);
        break;
    default:
        op->work = node->what.work;
        break;
    }
}

static sim_op *launch_nodes(const struct CUgraphExec_st *exec, const exec_launch *launch, sim_op *begin);

/* Launches a node, and returns the operation that later nodes wait for. A disabled node keeps its place in the order.
 */
static sim_op *launch_node(const struct CUgraphExec_st *exec, sim_exec_node *node, const exec_launch *launch,
                           sim_op *begin)
{
    bool works = node->enabled && !node->child;
    sim_op *op = new_op(launch, node->what.context, works ? node->what.kind : SIM_OP_MARK);
    op->launched.node = node->made;
    if (node->after_count == 0)
        sim_op_depend(op, begin);
    for (size_t i = 0; i < node->after_count; i++)
        sim_op_depend(op, exec->nodes[node->after[i]].op);
    if (works)
        take_part(node, op);
    sim_op_hold(op);
    sim_op_submit(op);
    if (!node->child)
        return op;
    sim_op *end = launch_nodes(node->child, launch, op);
    sim_op_drop(op);
    return end;
}

/* Launches the nodes behind `begin`, and an end behind them, which is returned held. Nothing runs during the call. */
static sim_op *launch_nodes(const struct CUgraphExec_st *exec, const exec_launch *launch, sim_op *begin)
{
    for (size_t i = 0; i < exec->count; i++) {
        sim_exec_node *node = &exec->nodes[exec->order[i]];
        node->op = launch_node(exec, node, launch, begin);
    }
    sim_op *end = new_op(launch, NULL, SIM_OP_MARK);
    sim_op_depend(end, begin);
    for (size_t i = 0; i < exec->count; i++) {
        sim_exec_node *node = &exec->nodes[i];
        if (node->before_count == 0)
            sim_op_depend(end, node->op);
        sim_op_drop(node->op);
        node->op = NULL;
    }
    sim_op_hold(end);
    sim_op_submit(end);
    return end;
}

static void free_before(const struct CUgraphExec_st *exec, const exec_launch *launch, sim_op *begin)
{
    for (size_t i = 0; i < exec->count; i++) {
        const sim_exec_node *node = &exec->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->memory->out) {
            sim_op *op = new_op(launch, NULL, SIM_OP_FREE);
            sim_op_depend(op, begin);
            sim_graph_memory_freed(node->memory, op);
            sim_op_submit(op);
        }
    }
}

static void submit_launch(struct CUgraphExec_st *exec, sim_queue *queue)
{
    sim_op *begin = sim_op_create(queue->context, queue, SIM_OP_MARK, 1);
    exec_launch launch = {.queue = queue, .context = queue->context, .number = begin->sequence};
    sim_op_hold(begin);
    sim_op_depend(begin, exec->last);
    sim_op_submit(begin);
    free_before(exec, &launch, begin);
    sim_op *inner = launch_nodes(exec, &launch, begin);
    sim_op *end = sim_op_create(queue->context, queue, SIM_OP_MARK, 1);
    sim_op_depend(end, inner);
    sim_op_drop(exec->last);
    exec->last = sim_op_hold(end);
    sim_op_submit(end);
    sim_op_drop(inner);
    sim_op_drop(begin);
}

CUresult sim_exec_launch(CUgraphExec exec, sim_queue *queue)
{
    CUresult result = contexts_good(exec);
    if (result != CUDA_SUCCESS)
        return result;
    if (!memory_good(exec))
        return CUDA_ERROR_INVALID_VALUE;
    size_t ops = 2 + exec->count;
    size_t edges = 2 * sim_queue_order_room(queue) + 2 + 4 * exec->count;
    count_launch(exec, &ops, &edges);
    if (!sim_op_reserve_many(ops, edges) || !copy_works(exec)) {
        drop_works(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!back_memory(exec)) {
        drop_works(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    submit_launch(exec, queue);
    drop_works(exec);
    return CUDA_SUCCESS;
}

/* ---- API ---- */

static const unsigned long long known_flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                              CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                              CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult sim_exec_instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags, CUgraphNode *wrong)
{
    *wrong = NULL;
    if (!exec || !sim_graph_valid(graph) || (flags & ~known_flags) != 0 || !sim_conditions_used(graph))
        return CUDA_ERROR_INVALID_VALUE;
    return graph->body_of ? CUDA_ERROR_NOT_SUPPORTED : sim_exec_create(graph, flags, exec, wrong);
}

/* Nothing to load: the upload only takes its place in the stream's order. */
CUresult sim_exec_upload(CUstream stream)
{
    sim_queue *queue;
    CUresult result = sim_queue_of(stream, &queue);
    if (result == CUDA_SUCCESS)
        result = sim_capture_guard_queue(queue);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_MARK, 0);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

/* ---- count ---- */

void sim_graphs_count(uint64_t *graphs, uint64_t *execs)
{
    *graphs = 0;
    *execs = 0;
    for (CUgraph graph = NULL; (graph = sim_slab_next(&sim_graph.graphs, graph));)
        *graphs += graph->embedded ? 0 : 1;
    for (CUgraphExec exec = NULL; (exec = sim_slab_next(&sim_graph.execs, exec));)
        *execs += exec->embedded ? 0 : 1;
}

void sim_graphs_close(void)
{
    for (CUgraphExec exec = NULL; (exec = sim_slab_next(&sim_graph.execs, exec));)
        if (!exec->embedded)
            sim_exec_free(exec);
    for (CUgraph graph = NULL; (graph = sim_slab_next(&sim_graph.graphs, graph));)
        if (!graph->embedded)
            sim_graph_free(graph);
}
