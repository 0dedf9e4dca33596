/* Running the bodies of conditional nodes.
 *
 *     launch ---- a ---- conditional operation ---- b ----        the launch's own operations
 *                           |  ^
 *                           v  |  reached(): rounds of a body, part after part
 *                          body nodes
 *
 * Which body runs, and how often, is known only when the conditional operation runs. It has a copy of its bodies, of
 * the launch's, runs them as its parts, and is complete with the last one. After ROUNDS rounds it is put aside for a
 * moment (order/watch.c), so that a loop can wait for other work, and an endless one leaves the lock.
 *
 * The checker knows a part by a component of its own, made at the launch. What comes after the node comes after all
 * that its parts will do: its operation has the parts' components at LAST, a position that none of them reaches. A part
 * itself comes after what the node comes after, after the parts that it depends on, and after all earlier rounds. */
#include "graph/graph.h"
#include <stdlib.h>

enum { ROUNDS = 64 }; /* of all loops of a node, before other work gets a turn */

static const uint64_t LAST = UINT64_C(1) << 62;

typedef struct body body;

typedef struct body_node {
    sim_op op; /* its work, if it has one */
    sim_made made;
    size_t *after;
    size_t after_count;
    body *child;
    sim_conditional *inner;
    sim_component *component; /* held; NULL: the launch was not checked */
    bool begun;
    bool done;
    sim_clock *known; /* held: before it, while it runs; then also itself */
} body_node;

struct body {
    body_node *nodes;
    size_t count;
    size_t left;        /* of this round */
    body_node *current; /* not done; or NULL */
    sim_clock *known;   /* before this round; held */
};

struct sim_conditional {
    sim_condition *condition; /* held */
    CUgraphConditionalNodeType form;
    body *bodies;
    unsigned count;
    body *inside;     /* that runs now; or NULL */
    sim_clock *known; /* before the next round; held */
    bool begun;
};

typedef struct body_turn {
    sim_op *whole;
    unsigned rounds; /* that it has left */
    uint64_t step;
} body_turn;

/* ---- copies ---- */

static bool make_body(body *made, const struct CUgraphExec_st *exec);

static bool copy_node(body_node *made, const sim_exec_node *node)
{
    made->op.kind = SIM_OP_MARK;
    made->made = node->made;
    made->after = calloc(node->after_count + 1, sizeof(*made->after));
    if (!made->after || (node->enabled && !sim_work_copy(&made->op, &node->what)))
        return false;
    made->op.references = 1;
    made->after_count = node->after_count;
    for (size_t i = 0; i < node->after_count; i++)
        made->after[i] = node->after[i];
    if (node->child) {
        made->child = calloc(1, sizeof(*made->child));
        return made->child && make_body(made->child, node->child);
    }
    made->inner = node->body_count > 0 ? sim_conditional_create(node) : NULL;
    return node->body_count == 0 || made->inner;
}

static bool make_body(body *made, const struct CUgraphExec_st *exec)
{
    made->nodes = calloc(exec->count + 1, sizeof(*made->nodes));
    for (size_t i = 0; made->nodes && i < exec->count; i++) {
        made->count++;
        if (!copy_node(&made->nodes[i], &exec->nodes[i]))
            return false;
    }
    return made->nodes != NULL;
}

static void free_body(body *one)
{
    for (size_t i = 0; i < one->count; i++) {
        body_node *node = &one->nodes[i];
        sim_work_free(&node->op);
        free(node->after);
        if (node->child)
            free_body(node->child);
        free(node->child);
        sim_conditional_free(node->inner);
        sim_component_drop(node->component);
        sim_clock_drop(node->known);
    }
    free(one->nodes);
    sim_clock_drop(one->known);
}

sim_conditional *sim_conditional_create(const sim_exec_node *node)
{
    sim_conditional *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->condition = node->condition;
    made->condition->references++;
    made->form = node->form;
    made->bodies = calloc(node->body_count, sizeof(*made->bodies));
    for (unsigned i = 0; made->bodies && i < node->body_count; i++) {
        made->count++;
        if (!make_body(&made->bodies[i], node->bodies[i])) {
            sim_conditional_free(made);
            return NULL;
        }
    }
    if (made->bodies)
        return made;
    sim_conditional_free(made);
    return NULL;
}

void sim_conditional_free(sim_conditional *conditional)
{
    if (!conditional)
        return;
    for (unsigned i = 0; i < conditional->count; i++)
        free_body(&conditional->bodies[i]);
    free(conditional->bodies);
    sim_clock_drop(conditional->known);
    sim_condition_drop(conditional->condition);
    free(conditional);
}

void sim_conditional_discard(sim_op *op)
{
    sim_conditional_free(op->work.conditional);
    op->work.conditional = NULL;
}

/* ---- the order of what comes after ---- */

static void cover(sim_op *op, sim_conditional *conditional);

static void cover_body(sim_op *op, body *one)
{
    for (size_t i = 0; i < one->count; i++) {
        body_node *node = &one->nodes[i];
        if (node->child)
            cover_body(op, node->child);
        if (node->inner)
            cover(op, node->inner);
        if (node->op.kind == SIM_OP_MARK)
            continue;
        node->component = sim_component_open();
        if (!node->component) {
            sim_order.joins_lost = true;
            continue;
        }
        sim_point all = {.slot = node->component->slot, .component = node->component->uid, .position = LAST};
        sim_clock_join(&op->at.knows, 0, &all);
    }
}

static void cover(sim_op *op, sim_conditional *conditional)
{
    for (unsigned i = 0; i < conditional->count; i++)
        cover_body(op, &conditional->bodies[i]);
}

void sim_conditional_submit(sim_op *op)
{
    sim_conditional *conditional = op->work.conditional;
    conditional->known = sim_clock_hold(op->at.knows);
    if (sim.checking)
        cover(op, conditional);
}

/* ---- parts ---- */

static void join_clock(sim_clock **owner, sim_clock *clock)
{
    sim_point point = {.knows = clock};
    sim_clock_join(owner, 0, &point);
}

static void run_part(const body_turn *turn, body_node *node)
{
    sim_op *op = &node->op;
    op->part_of = turn->whole;
    op->launched = turn->whole->launched;
    op->launched.node = node->made;
    op->at = (sim_point){.knows = node->known};
    op->chain = node->component ? sim_component_hold(node->component) : NULL;
    op->at.position = op->chain ? op->chain->last : 0;
    sim_op_run_part(op);
    sim_point itself = {.slot = op->at.slot, .component = op->at.component, .position = op->at.position};
    op->at = (sim_point){0};
    sim_clock_join(&node->known, 0, &itself);
}

static void begin_body(body *one, sim_clock *known)
{
    one->known = sim_clock_hold(known);
    one->left = one->count;
    one->current = NULL;
    for (size_t i = 0; i < one->count; i++)
        one->nodes[i].begun = one->nodes[i].done = false;
}

/* Ends a round of a body, and joins all that it did to `known`. */
static void end_body(body *one, sim_clock **known)
{
    for (size_t i = 0; i < one->count; i++) {
        join_clock(known, one->nodes[i].known);
        sim_clock_drop(one->nodes[i].known);
        one->nodes[i].known = NULL;
    }
    sim_clock_drop(one->known);
    one->known = NULL;
}

static bool is_ready(const body *one, const body_node *node)
{
    bool ready = !node->done;
    for (size_t i = 0; i < node->after_count && ready; i++)
        ready = one->nodes[node->after[i]].done;
    return ready;
}

static body_node *pick(body_turn *turn, body *one)
{
    size_t ready = 0;
    for (size_t i = 0; i < one->count; i++)
        ready += is_ready(one, &one->nodes[i]);
    size_t picked = sim_op_pick(turn->whole, turn->step++, ready);
    for (size_t i = 0;; i++)
        if (is_ready(one, &one->nodes[i]) && picked-- == 0)
            return &one->nodes[i];
}

static bool go_on(body_turn *turn, sim_conditional *conditional);
static bool go_on_in_body(body_turn *turn, body *one);

static void begin_node(const body *one, body_node *node)
{
    node->begun = true;
    node->known = sim_clock_hold(one->known);
    for (size_t i = 0; i < node->after_count; i++)
        join_clock(&node->known, one->nodes[node->after[i]].known);
    if (node->child)
        begin_body(node->child, node->known);
    if (node->inner) {
        node->inner->known = sim_clock_hold(node->known);
        node->inner->begun = true;
    }
}

/* Runs what the turn has room for of a node; as go_on_in_body and go_on: false if the turn is over before the end. */
static bool go_on_in_node(body_turn *turn, body *one, body_node *node)
{
    if (!node->begun)
        begin_node(one, node);
    if (node->child) {
        if (!go_on_in_body(turn, node->child))
            return false;
        end_body(node->child, &node->known);
    } else if (node->inner) {
        if (!go_on(turn, node->inner))
            return false;
        join_clock(&node->known, node->inner->known);
        sim_clock_drop(node->inner->known);
        node->inner->known = NULL;
    } else if (node->op.kind != SIM_OP_MARK) {
        run_part(turn, node);
    }
    return true;
}

static bool go_on_in_body(body_turn *turn, body *one)
{
    while (one->left > 0) {
        if (!one->current)
            one->current = pick(turn, one);
        if (!go_on_in_node(turn, one, one->current))
            return false;
        one->current->done = true;
        one->current = NULL;
        one->left--;
    }
    return true;
}

/* Returns the body of the next round; NULL: none. A value that is not defined is drawn: a program cannot rely on any.
 */
static body *choose(body_turn *turn, sim_conditional *conditional)
{
    unsigned value;
    if (turn->whole->context->device->poison != CUDA_SUCCESS)
        return NULL;
    if (!sim_condition_get(conditional->condition, turn->whole->launched.launch, &value))
        value = (unsigned)sim_op_pick(turn->whole, turn->step++, 2);
    if (conditional->form == CU_GRAPH_COND_TYPE_SWITCH)
        return value < conditional->count ? &conditional->bodies[value] : NULL;
    if (value != 0)
        return &conditional->bodies[0];
    return conditional->count == 2 ? &conditional->bodies[1] : NULL;
}

static bool go_on(body_turn *turn, sim_conditional *conditional)
{
    bool again = true;
    while (again) {
        if (!conditional->inside) {
            if (turn->rounds == 0)
                return false;
            conditional->inside = choose(turn, conditional);
            if (!conditional->inside)
                return true;
            turn->rounds--;
            begin_body(conditional->inside, conditional->known);
        }
        if (!go_on_in_body(turn, conditional->inside))
            return false;
        end_body(conditional->inside, &conditional->known);
        conditional->inside = NULL;
        again = conditional->form == CU_GRAPH_COND_TYPE_WHILE;
    }
    return true;
}

bool sim_conditional_reached(sim_op *op)
{
    sim_conditional *conditional = op->work.conditional;
    body_turn turn = {.whole = op, .rounds = ROUNDS, .step = op->context->device->time};
    if (!conditional->begun) {
        sim_point itself = {.slot = op->at.slot, .component = op->at.component, .position = op->at.position};
        sim_clock_join(&conditional->known, 0, &itself);
        conditional->begun = true;
    }
    return go_on(&turn, conditional);
}
