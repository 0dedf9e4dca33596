/* Vector clocks of the order that the program asked for: for reuse of freed memory by pools and races in the checker.
 *
 * A component is a sequence of ordered operations: a stream's, or a chain outside all streams, such as a path through a
 * graph. A clock holds for each component the position up to which everything comes before. A point is a component, a
 * position, and the clock of what comes before.
 *
 * A stream's mark (record or wait) that adds no order shares the previous work's position: a stream's clock never grows
 * while its position stays, so a known position needs no look at the clock. Work always has its own position.
 *
 * Clocks hold only order that the program may rely on: a stream's own, event waits, the legacy stream, edges of graphs.
 * The driver's own waits, such as for the free of reused memory, are left out.
 *
 *     queue->knows           before the stream's next operation, besides the stream's own work
 *     op->at                 the operation's point
 *     context->ended         work of streams that are gone
 *     sim_order.host_knows   what the host knows to be done, from waits and successful queries
 *
 * The host's clock is separate, since pools ignore it. It counts for every later submission by any thread: the driver
 * cannot see how threads order themselves, and must not miss order that exists. It only grows, so operations need not
 * pass it on.
 *
 * Clocks find a component by slot and compare its uid: entries of an ended component count for nothing and are
 * overwritten. A component ends when its stream is gone and it holds no access record. */
#include "order/order.h"
#include <stdlib.h>
#include <string.h>

/* ---- components ---- */

static bool find_slot(uint32_t *slot)
{
    for (uint32_t i = sim_order.component_hint; i < sim_order.component_slots; i++) {
        if (!sim_order.components[i]) {
            *slot = i;
            return true;
        }
    }
    uint32_t slots = sim_order.component_slots ? 2 * sim_order.component_slots : 16;
    sim_component **components = realloc(sim_order.components, slots * sizeof(*components));
    if (!components)
        return false;
    memset(components + sim_order.component_slots, 0, (slots - sim_order.component_slots) * sizeof(*components));
    *slot = sim_order.component_slots;
    sim_order.components = components;
    sim_order.component_slots = slots;
    return true;
}

sim_component *sim_component_open(void)
{
    uint32_t slot;
    sim_component *component = calloc(1, sizeof *component);
    if (!component || !find_slot(&slot)) {
        free(component);
        return NULL;
    }
    component->references = 1;
    component->slot = slot;
    component->uid = ++sim_order.last_uid;
    sim_order.components[slot] = component;
    sim_order.component_hint = slot + 1;
    return component;
}

sim_component *sim_component_hold(sim_component *component)
{
    component->references++;
    return component;
}

void sim_component_drop(sim_component *component)
{
    if (!component || --component->references > 0)
        return;
    sim_order.components[component->slot] = NULL;
    if (component->slot < sim_order.component_hint)
        sim_order.component_hint = component->slot;
    free(component->pending.at);
    free(component);
}

static bool component_alive(uint32_t slot, uint64_t uid)
{
    return uid != 0 && slot < sim_order.component_slots && sim_order.components[slot] &&
           sim_order.components[slot]->uid == uid;
}

/* ---- clocks ---- */

sim_clock *sim_clock_hold(sim_clock *clock)
{
    if (clock)
        clock->references++;
    return clock;
}

void sim_clock_drop(sim_clock *clock)
{
    if (clock && --clock->references == 0) {
        sim_order.clock_bytes -= sizeof *clock + clock->slots * sizeof clock->at[0];
        free(clock);
    }
}

uint64_t sim_clock_position(const sim_clock *clock, uint32_t slot, uint64_t component)
{
    if (!clock || slot >= clock->slots || clock->at[slot].component != component)
        return 0;
    return clock->at[slot].position;
}

/* Makes the clock its owner's alone, with at least so many slots. NULL without memory. */
static sim_clock *own(sim_clock **owner, uint32_t slots)
{
    sim_clock *old = *owner;
    if (old && old->references == 1 && old->slots >= slots)
        return old;
    if (old && old->slots > slots)
        slots = old->slots;
    size_t bytes = sizeof *old + slots * sizeof old->at[0];
    sim_clock *clock = malloc(bytes);
    if (!clock) {
        sim_order.joins_lost = true;
        return NULL;
    }
    uint32_t kept = old ? old->slots : 0;
    clock->references = 1;
    clock->slots = slots;
    if (old) {
        memcpy(clock->at, old->at, kept * sizeof clock->at[0]);
        sim_clock_drop(old);
    }
    memset(clock->at + kept, 0, (slots - kept) * sizeof clock->at[0]);
    sim_order.clock_bytes += bytes;
    *owner = clock;
    return clock;
}

/* Slots for a clock with this one, in steps, so that it seldom grows. */
static uint32_t room_for(uint32_t slot)
{
    enum { STEP = 8 };
    return (slot / STEP + 1) * STEP;
}

/* What a join adds; NEWS: the host did not know it either. */
enum { NOTHING = 0, SOMETHING = 1, NEWS = 2 };

static unsigned join_tick(sim_clock **owner, uint64_t own_component, uint32_t slot, const sim_clock_entry *tick)
{
    if (tick->component == own_component || tick->position <= sim_clock_position(*owner, slot, tick->component) ||
        !component_alive(slot, tick->component))
        return NOTHING;
    bool known = tick->position <= sim_clock_position(sim_order.host_knows, slot, tick->component);
    sim_clock *clock = own(owner, room_for(slot));
    if (!clock)
        return NOTHING;
    clock->at[slot] = *tick;
    return known ? SOMETHING : SOMETHING | NEWS;
}

static unsigned join(sim_clock **owner, uint64_t own_component, const sim_point *point)
{
    sim_clock_entry tick = {.component = point->component, .position = point->position};
    const sim_clock *knows = point->knows;
    unsigned gained = join_tick(owner, own_component, point->slot, &tick);
    if (!knows || knows == *owner)
        return gained;
    for (uint32_t i = 0; i < knows->slots; i++)
        if (knows->at[i].component != 0)
            gained |= join_tick(owner, own_component, i, &knows->at[i]);
    return gained;
}

void sim_clock_join(sim_clock **owner, uint64_t own_component, const sim_point *point)
{
    join(owner, own_component, point);
}

void sim_edge_counted(bool idle)
{
    sim_order.edges++;
    sim_order.idle_edges += idle;
}

/* ---- streams and the host ---- */

sim_point sim_queue_point(const sim_queue *queue)
{
    const sim_component *component = queue->component;
    return (sim_point){
        .slot = component->slot, .component = component->uid, .position = component->last, .knows = queue->knows};
}

bool sim_queue_join(sim_queue *queue, const sim_point *point)
{
    if (point->component == queue->component->uid)
        return false;
    unsigned gained = join(&queue->knows, queue->component->uid, point);
    sim_order.joined = sim_order.joined || (gained & NEWS) != 0;
    return gained != NOTHING;
}

void sim_host_join(const sim_point *point)
{
    sim_order.joined = (join(&sim_order.host_knows, 0, point) & NEWS) != 0 || sim_order.joined;
}
