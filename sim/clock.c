/* Vector clocks: for each stream, how far into every other stream its own work is known to come after. An event carries
 * the clock of its stream at the record, and a wait for it teaches that clock to the waiting stream. Memory that was
 * freed on one stream is reused on another by this knowledge.
 *
 * Entries are found by queue slot and name the queue's uid, so an entry of a queue that has ended, whose slot has
 * another queue now, counts for nothing and is overwritten. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

struct sim_clock *sim_clock_hold(struct sim_clock *clock)
{
    if (clock) {
        clock->references++;
    }
    return clock;
}

void sim_clock_drop(struct sim_clock *clock)
{
    if (clock && --clock->references == 0) {
        free(clock);
    }
}

uint64_t sim_clock_position(const struct sim_clock *clock, uint32_t slot, uint64_t queue_uid)
{
    if (!clock || slot >= clock->slots || clock->at[slot].queue != queue_uid) {
        return 0;
    }
    return clock->at[slot].position;
}

/* The queue's clock, its own alone and with room for all slots. */
static struct sim_clock *own_clock(struct sim_queue *queue)
{
    struct sim_clock *old = queue->knows;
    if (old && old->references == 1 && old->slots >= sim.queue_slots) {
        return old;
    }
    uint32_t slots = sim.queue_slots;
    struct sim_clock *clock = calloc(1, sizeof *clock + slots * sizeof clock->at[0]);
    if (!clock) {
        return NULL;
    }
    clock->references = 1;
    clock->slots = slots;
    if (old) {
        memcpy(clock->at, old->at, (old->slots < slots ? old->slots : slots) * sizeof clock->at[0]);
        sim_clock_drop(old);
    }
    queue->knows = clock;
    return clock;
}

static bool is_news(const struct sim_queue *queue, uint32_t slot, const struct sim_tick *tick)
{
    return tick->position > sim_clock_position(queue->knows, slot, tick->queue) && tick->queue != queue->uid &&
           sim_queue_alive(slot, tick->queue);
}

static void learn_one(struct sim_queue *queue, uint32_t slot, const struct sim_tick *tick)
{
    if (!is_news(queue, slot, tick)) {
        return;
    }
    struct sim_clock *clock = own_clock(queue);
    if (clock) {
        clock->at[slot] = *tick;
    }
}

void sim_queue_learn(struct sim_queue *queue, uint32_t slot, uint64_t queue_uid, uint64_t position,
                     const struct sim_clock *clock)
{
    struct sim_tick tick = {.queue = queue_uid, .position = position};
    learn_one(queue, slot, &tick);
    for (uint32_t i = 0; clock && i < clock->slots; i++) {
        learn_one(queue, i, &clock->at[i]);
    }
}
