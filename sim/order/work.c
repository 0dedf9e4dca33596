/* Operations and edges. An edge from another operation (the stream's previous one, an event's record, reused memory)
 * blocks an operation until that one completes. Clocks keep the program's order beyond that. */
#include "order/order.h"
#include <stdlib.h>

enum { SLAB = 256 };

typedef struct op_slab {
    struct op_slab *next;
    sim_op ops[SLAB];
} op_slab;

typedef struct edge_slab {
    struct edge_slab *next;
    sim_edge edges[SLAB];
} edge_slab;

/* Guarded by sim.lock. */
static op_slab *op_slabs;
static edge_slab *edge_slabs;
static sim_op *free_ops;
static size_t free_op_count;
static sim_edge *free_edges; /* by next_successor */
static size_t free_edge_count;

static bool reserve_edges(size_t count)
{
    while (free_edge_count < count) {
        edge_slab *slab = malloc(sizeof *slab);
        if (!slab)
            return false;
        slab->next = edge_slabs;
        edge_slabs = slab;
        for (size_t i = 0; i < SLAB; i++) {
            slab->edges[i].next_successor = free_edges;
            free_edges = &slab->edges[i];
        }
        free_edge_count += SLAB;
    }
    return true;
}

static bool reserve_ops(size_t count)
{
    while (free_op_count < count) {
        op_slab *slab = malloc(sizeof *slab);
        if (!slab)
            return false;
        slab->next = op_slabs;
        op_slabs = slab;
        for (size_t i = 0; i < SLAB; i++) {
            slab->ops[i] = (sim_op){.next = free_ops};
            free_ops = &slab->ops[i];
        }
        free_op_count += SLAB;
    }
    return true;
}

static sim_op *take_op(void)
{
    sim_op *op = free_ops;
    free_ops = op->next;
    free_op_count--;
    return op;
}

bool sim_op_reserve_many(size_t ops, size_t edges)
{
    size_t unfinished = (size_t)sim_order.unfinished + ops;
    return reserve_ops(ops) && reserve_edges(edges) && sim_heap_reserve(&sim_order.chosen, unfinished) &&
           sim_heap_reserve(&sim_order.delayed, unfinished);
}

bool sim_op_reserve(const sim_queue *queue, size_t extra)
{
    return sim_op_reserve_many(1, extra + (queue ? sim_queue_order_room(queue) : 0));
}

sim_op *sim_op_create(sim_context *context, sim_queue *queue, sim_op_kind kind, size_t extra)
{
    if (queue && queue->capture)
        return sim_hooks.graph->capture_op(context, queue, kind);
    if (!sim_op_reserve(queue, extra))
        return NULL;
    sim_op *op = take_op();
    *op = (sim_op){.kind = kind, .context = context, .queue = queue, .references = 1};
    op->sequence = ++sim_order.submitted;
    sim_order.unfinished++;
    if (queue)
        sim_queue_order(queue, op);
    return op;
}

/* An operation without a queue continues the chain of a predecessor if it is the first to do so. */
static void continue_chain(sim_op *op, const sim_op *on)
{
    if (on->chain && on->chain->last == on->at.position && !op->chain) {
        op->chain = sim_component_hold(on->chain);
        op->at.position = on->at.position;
    }
}

/* Gives an operation its point in the order. Without a queue it needs a position only for the checker. */
static void take_place(sim_op *op)
{
    if (op->queue) {
        op->at.knows = sim_clock_hold(op->queue->knows);
        return;
    }
    if (op->chain && op->chain->last != op->at.position) {
        sim_component_drop(op->chain);
        op->chain = NULL;
    }
    if (!op->chain && sim.checking && op->kind != SIM_OP_MARK) {
        op->chain = sim_component_open();
        sim_order.joins_lost = sim_order.joins_lost || !op->chain;
    }
    if (op->chain) {
        op->at.slot = op->chain->slot;
        op->at.component = op->chain->uid;
        op->at.position = ++op->chain->last;
    }
}

sim_op *sim_op_detached(sim_context *context, sim_op_kind kind)
{
    if (!reserve_ops(1))
        return NULL;
    sim_op *op = take_op();
    *op = (sim_op){.kind = kind, .context = context, .references = 1};
    return op;
}

void sim_op_join(sim_op *op, const sim_point *point)
{
    if (!op->queue) {
        sim_clock_join(&op->at.knows, 0, point);
        return;
    }
    bool gained = sim_queue_join(op->queue, point);
    if (op->kind == SIM_OP_MARK && gained)
        op->at.position = ++op->queue->component->last;
}

void sim_op_depend(sim_op *op, sim_op *on)
{
    if (!on)
        return;
    sim_op_join(op, &on->at);
    if (!op->queue)
        continue_chain(op, on);
    sim_op_await(op, on);
}

void sim_op_await(sim_op *op, sim_op *on)
{
    if (sim_op_done(on))
        return;
    sim_edge *edge = free_edges;
    free_edges = edge->next_successor;
    free_edge_count--;
    edge->from = on;
    edge->to = op;
    edge->next_successor = on->successors;
    on->successors = edge;
    edge->next_predecessor = op->predecessors;
    if (edge->next_predecessor)
        edge->next_predecessor->predecessor_link = &edge->next_predecessor;
    op->predecessors = edge;
    edge->predecessor_link = &op->predecessors;
    op->blockers++;
    op->awaits_value = op->awaits_value || on->awaits_value || on->kind == SIM_OP_WAIT_VALUE;
}

/* Whether the host can end the operation: by the return of a function, or by writing a value. */
static bool held_by_host(const sim_op *op)
{
    return op->kind == SIM_OP_HOST || op->kind == SIM_OP_WAIT_VALUE;
}

void sim_op_submit(sim_op *op)
{
    if (op->node) {
        sim_hooks.graph->capture_submit(op);
        return;
    }
    take_place(op);
    if (sim_hooks.check->on)
        sim_hooks.check->submitted(op);
    sim_order.held_by_host += held_by_host(op);
    if (sim_hooks.memory->submitted)
        sim_hooks.memory->submitted(op);
    op->latest = sim_order.calls + SIM_LATEST_CALLS;
    if (op->blockers > 0) {
        op->state = SIM_OP_BLOCKED;
        return;
    }
    sim_op_became_ready(op);
}

sim_op *sim_op_hold(sim_op *op)
{
    op->references++;
    return op;
}

/* Releases its place in the order. */
static void forget(sim_op *op)
{
    if (sim_hooks.check->on)
        sim_hooks.check->completed(op);
    sim_clock_drop(op->at.knows);
    op->at.knows = NULL;
    sim_component_drop(op->chain);
    op->chain = NULL;
}

void sim_op_drop(sim_op *op)
{
    if (op && --op->references == 0) {
        forget(op);
        op->next = free_ops;
        free_ops = op;
        free_op_count++;
    }
}

static void cut(sim_edge *edge)
{
    *edge->predecessor_link = edge->next_predecessor;
    if (edge->next_predecessor)
        edge->next_predecessor->predecessor_link = edge->predecessor_link;
    edge->next_successor = free_edges;
    free_edges = edge;
    free_edge_count++;
}

void sim_op_complete(sim_op *op)
{
    op->state = SIM_OP_DONE;
    if (sim_hooks.check->on) {
        uint64_t order = sim_hooks.check->completed(op);
        op->told = op->kind == SIM_OP_HOST ? order : op->told;
    }
    sim_order.held_by_host -= held_by_host(op);
    op->finished_at = op->context->device->time;
    sim_order.unfinished--;
    sim_order.finished++;
    sim_edge *edge = op->successors;
    op->successors = NULL;
    while (edge) {
        sim_edge *next = edge->next_successor;
        sim_op *to = edge->to;
        cut(edge);
        to->told = to->told > op->told ? to->told : op->told;
        if (--to->blockers == 0 && to->state == SIM_OP_BLOCKED)
            sim_op_became_ready(to);
        edge = next;
    }
    if (op->queue) {
        sim_queue_finished(op->queue, op);
        op->queue = NULL;
    }
    sim_op_drop(op);
}

void sim_op_begin_part(sim_op *op)
{
    op->references++; /* its completion drops one */
    op->state = SIM_OP_GATHERING;
    op->sequence = ++sim_order.submitted;
    sim_order.unfinished++;
    take_place(op);
    if (sim_hooks.check->on)
        sim_hooks.check->submitted(op);
    if (sim_hooks.memory->submitted)
        sim_hooks.memory->submitted(op);
}

void sim_op_end_part(sim_op *op)
{
    sim_component_drop(op->chain);
    op->chain = NULL;
}

/* Releases an operation that never runs, and the block of a free with it. */
static void abandon(sim_op *op)
{
    if (op->references == 0)
        return;
    forget(op);
    if (op->state == SIM_OP_DONE)
        return;
    sim_op_discard(op);
    if (sim_op_types[op->kind].abandon)
        sim_op_types[op->kind].abandon(op);
}

void sim_ops_close(void)
{
    while (op_slabs) {
        op_slab *next = op_slabs->next;
        for (size_t i = 0; i < SLAB; i++)
            abandon(&op_slabs->ops[i]);
        free(op_slabs);
        op_slabs = next;
    }
    while (edge_slabs) {
        edge_slab *next = edge_slabs->next;
        free(edge_slabs);
        edge_slabs = next;
    }
    free_ops = NULL;
    free_op_count = 0;
    free_edges = NULL;
    free_edge_count = 0;
    free(sim_order.chosen.at);
    free(sim_order.delayed.at);
    sim_order.chosen = (sim_heap){0};
    sim_order.delayed = (sim_heap){0};
}
