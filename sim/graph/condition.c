/* Conditions, and the conditional nodes that read them. Answers as an H200 gave them (tests/answers, conditional_*). */
#include "graph/graph.h"
#include <stdlib.h>

static sim_condition *condition_of(CUgraphConditionalHandle handle)
{
    sim_condition *condition = (sim_condition *)(uintptr_t)handle;
    return sim_slab_has(&sim_graph.conditions, condition) ? condition : NULL;
}

static CUresult context_of(CUcontext given, sim_context **context)
{
    if (!given || !sim_context_valid(given))
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = given;
    return sim_context_check(given);
}

/* Gives dead conditions' handles back, once no kernel is left that could set them. */
static void bury(void)
{
    while (sim_order.unfinished == 0 && sim_graph.dead_conditions) {
        sim_condition *condition = sim_graph.dead_conditions;
        sim_graph.dead_conditions = condition->next;
        sim_slab_give(&sim_graph.conditions, condition);
    }
}

CUresult sim_condition_create(CUgraph graph, CUcontext given, unsigned initial, unsigned flags,
                              CUgraphConditionalHandle *handle)
{
    sim_context *context;
    if (!handle || !sim_graph_valid(graph) || (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_of(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    bury();
    sim_condition *condition = sim_slab_take(&sim_graph.conditions);
    if (!condition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    condition->references = 1;
    condition->context = context;
    condition->initial = initial;
    condition->has_initial = flags == CU_GRAPH_COND_ASSIGN_DEFAULT;
    condition->next = graph->conditions;
    graph->conditions = condition;
    *handle = (CUgraphConditionalHandle)(uintptr_t)condition;
    return CUDA_SUCCESS;
}

void sim_condition_drop(sim_condition *condition)
{
    if (!condition || --condition->references > 0)
        return;
    condition->next = sim_graph.dead_conditions;
    sim_graph.dead_conditions = condition;
    bury();
}

void sim_conditions_free(CUgraph graph)
{
    while (graph->conditions) {
        sim_condition *next = graph->conditions->next;
        sim_condition_drop(graph->conditions);
        graph->conditions = next;
    }
}

bool sim_conditions_used(CUgraph graph)
{
    for (const sim_condition *condition = graph->conditions; condition; condition = condition->next)
        if (!condition->used)
            return false;
    for (CUgraphNode node = graph->first; node; node = node->next)
        for (unsigned i = 0; i < node->branches.count; i++)
            if (!sim_conditions_used(node->branches.bodies[i]))
                return false;
    return true;
}

bool sim_condition_set(const sim_op *kernel, uint64_t handle, unsigned value)
{
    sim_condition *condition = condition_of(handle);
    if (!condition || condition->context != kernel->context)
        return false;
    condition->value = value;
    condition->launch = kernel->launched.launch;
    return true;
}

bool sim_condition_get(const sim_condition *condition, uint64_t launch, unsigned *value)
{
    bool set = condition->launch == launch;
    *value = set ? condition->value : condition->initial;
    return set || condition->has_initial;
}

/* ---- nodes ---- */

static bool owns(CUgraph graph, const sim_condition *condition)
{
    for (const sim_condition *one = graph->conditions; one; one = one->next)
        if (one == condition)
            return true;
    for (CUgraphNode node = graph->first; node; node = node->next)
        for (unsigned i = 0; i < node->branches.count; i++)
            if (owns(node->branches.bodies[i], condition))
                return true;
    return false;
}

/* Whether a node of the graph may read the condition: one of its graph, of a graph around it, or of any body in these.
 */
static bool reaches(CUgraph graph, const sim_condition *condition)
{
    while (graph->body_of)
        graph = graph->body_of->graph;
    return owns(graph, condition);
}

static bool size_good(CUgraphConditionalNodeType type, unsigned size)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
        return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return size > 0;
    }
    return false;
}

static bool add_body(CUgraphNode node)
{
    CUgraph body = sim_graph_create();
    if (!body)
        return false;
    body->embedded = true;
    body->body_of = node;
    node->branches.bodies[node->branches.count++] = body;
    return true;
}

CUresult sim_branches_add(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    sim_context *context;
    sim_condition *condition = condition_of(params->handle);
    CUresult result = context_of(params->ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!condition || condition->used || !reaches(node->graph, condition) || !size_good(params->type, params->size) ||
        context != condition->context)
        return CUDA_ERROR_INVALID_VALUE;
    sim_branches *branches = &node->branches;
    branches->bodies = calloc(params->size, sizeof(*branches->bodies));
    for (unsigned i = 0; branches->bodies && i < params->size; i++)
        if (!add_body(node))
            return CUDA_ERROR_OUT_OF_MEMORY;
    if (!branches->bodies)
        return CUDA_ERROR_OUT_OF_MEMORY;
    branches->type = params->type;
    branches->condition = condition;
    condition->references++;
    condition->used = true;
    node->what.context = condition->context;
    params->phGraph_out = branches->bodies;
    return CUDA_SUCCESS;
}

void sim_branches_free(sim_branches *branches)
{
    for (unsigned i = 0; i < branches->count; i++)
        sim_graph_free(branches->bodies[i]);
    free(branches->bodies);
    if (branches->condition)
        branches->condition->used = false;
    sim_condition_drop(branches->condition);
    *branches = (sim_branches){0};
}

/* ---- what bodies may have ---- */

static bool is_pageable(const sim_op *copy)
{
    return copy->kind == SIM_OP_COPY ? copy->work.copy.to.pageable || copy->work.copy.from.pageable
                                     : copy->work.rows.to.place.pageable || copy->work.rows.from.place.pageable;
}

static bool node_good(CUgraphNode node, const sim_context *context, CUgraphNode *wrong)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        *wrong = node;
        return node->what.context == context && !is_pageable(&node->what);
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        *wrong = node;
        return node->what.context == context;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return sim_body_good(node->child, context, wrong);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        *wrong = node;
        return node->branches.condition->context == context; /* its bodies are looked at when they are copied */
    default:
        *wrong = node;
        return false;
    }
}

bool sim_body_good(CUgraph body, const sim_context *context, CUgraphNode *wrong)
{
    for (CUgraphNode node = body->first; node; node = node->next)
        if (!node_good(node, context, wrong))
            return false;
    *wrong = NULL;
    return true;
}

CUgraphInstantiateResult sim_body_fault(CUgraphNode wrong)
{
    switch (wrong->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
    default:
        return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    }
}
