/* Waits for values that streams or the host write.
 *
 * A wait runs when its turn in the stream comes; if the value is not there, it is put aside and looked at again
 * whenever the scheduler has run something, at the end of every driver call, and every now and then while a host waits
 * for what comes behind it: the value may come from other work, from the host's own hand, or never. A host that waits
 * for a value that never comes waits for ever, as on a device. While it waits, what other streams have to do is needed
 * too, since any of it may bring the value; it is let go one stream at a time, so that under the policies random and
 * late no more of it runs than must. */
#include "order/order.h"

void sim_op_watch(sim_op *op)
{
    op->state = SIM_OP_WATCHING;
    op->next = sim_order.watching;
    sim_order.watching = op;
}

/* What is put aside and over leaves the list before anything else happens, since its end may put others there. */
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

/* Lets one more stream go on; which one comes first is the policy's choice. False: there is none. */
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
        if (queue && queue->tail && !queue->tail->needed) {
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
