/* Waits for values that streams or the host write, and loops of graphs.
 *
 * A wait without its value, or a loop that has gone round many times, is put aside, and tested again after the
 * scheduler has run operations, at each end of a driver call, and periodically while a host waits for what follows it,
 * forever if the value never comes, as on a device. Meanwhile other streams' work, which may write the value, is
 * needed: one stream at a time, so that random and late run no more than necessary.
 */
#include "order/order.h"

void sim_op_watch(sim_op *op)
{
    op->state = SIM_OP_WATCHING;
    op->next = sim_order.watching;
    sim_order.watching = op;
}

/* Takes an operation that is over out of the list, or returns NULL. Its completion may add others to the list. */
static sim_op *take_reached(void)
{
    sim_op **link = &sim_order.watching;
    while (*link && !sim_op_types[(*link)->kind].reached(*link))
        link = &(*link)->next;
    sim_op *op = *link;
    if (op) {
        *link = op->next;
        op->next = NULL;
    }
    return op;
}

static bool host_waits(void)
{
    for (const sim_op *op = sim_order.watching; op; op = op->next)
        if (op->needed)
            return true;
    return false;
}

/* Whether the queue has work that can be let run. A host function that runs already needs nothing more but the lock. */
static bool may_go_on(const sim_queue *queue)
{
    return queue->tail && !queue->tail->needed && queue->tail->state != SIM_OP_RUNNING;
}

/* Lets one more stream run, chosen by the policy. False: there is none. */
static bool let_one_go_on(void)
{
    uint32_t count = sim_order.component_slots;
    uint32_t first = 0;
    if (sim.settings.policy == STRATA_SIM_RANDOM && count > 0)
        first = (uint32_t)(sim_mix(sim.settings.seed + sim_order.finished - sim_order.seeded_at) % count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (first + i) % count;
        uint32_t slot = sim.settings.policy == STRATA_SIM_LATE ? count - 1 - at : at;
        const sim_queue *queue = sim_order.components[slot] ? sim_order.components[slot]->queue : NULL;
        if (queue && may_go_on(queue)) {
            sim_op_need(queue->tail);
            return true;
        }
    }
    return false;
}

bool sim_watched_run(void)
{
    sim_op *op;
    while ((op = take_reached())) {
        op->state = SIM_OP_RUNNING;
        sim_op_run(op);
        sim_op_complete(op);
    }
    while (sim_order.chosen.count == 0 && host_waits() && let_one_go_on()) {
    }
    return sim_order.chosen.count > 0;
}
