/* The scheduler. A ready operation is chosen when a host needs it; under early at once; under random also when its
 * delay, counted in driver calls, is over; under random and late also SIM_LATEST_CALLS after its submission, so that
 * work for which no host waits does not pile up, and a program that polls by any call comes to an end. Chosen
 * operations run in order of submission under early, shuffled under random, reversed under late. Delay and shuffle are
 * hashed from the seed and the operation's number; polls count as driver calls too. */
#include "order/order.h"
#include <stdlib.h>
#include <time.h>

bool sim_heap_reserve(sim_heap *heap, size_t count)
{
    if (count <= heap->capacity)
        return true;
    size_t capacity = count < 64 ? 64 : 2 * count;
    sim_op **at = realloc(heap->at, capacity * sizeof(*at));
    if (!at)
        return false;
    heap->at = at;
    heap->capacity = capacity;
    return true;
}

static bool sooner(const sim_op *a, const sim_op *b)
{
    return a->order < b->order || (a->order == b->order && a->sequence < b->sequence);
}

static void put(sim_heap *heap, size_t index, sim_op *op)
{
    heap->at[index] = op;
    op->heap_index = index;
}

static void sift_up(sim_heap *heap, size_t index, sim_op *op)
{
    while (index > 0 && sooner(op, heap->at[(index - 1) / 2])) {
        put(heap, index, heap->at[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    put(heap, index, op);
}

static void sift_down(sim_heap *heap, size_t index, sim_op *op)
{
    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && sooner(heap->at[child + 1], heap->at[child]))
            child++;
        if (!sooner(heap->at[child], op))
            break;
        put(heap, index, heap->at[child]);
        index = child;
    }
    put(heap, index, op);
}

void sim_heap_push(sim_heap *heap, sim_op *op)
{
    sift_up(heap, heap->count++, op);
}

void sim_heap_remove(sim_heap *heap, sim_op *op)
{
    size_t index = op->heap_index;
    sim_op *last = heap->at[--heap->count];
    if (last == op)
        return;
    if (sooner(last, op))
        sift_up(heap, index, last);
    else
        sift_down(heap, index, last);
}

static uint64_t draw(const sim_op *op, uint64_t purpose)
{
    return sim_mix(sim.settings.seed * 0x9e3779b97f4a7c15U +
                   sim_mix((op->sequence - sim_order.seeded_at) * 4 + purpose));
}

size_t sim_op_pick(const sim_op *op, uint64_t step, size_t count)
{
    if (sim.settings.policy == STRATA_SIM_EARLY)
        return 0;
    return sim.settings.policy == STRATA_SIM_LATE ? count - 1 : sim_mix(draw(op, 3) + step) % count;
}

/* After how many driver calls an operation may run. Of eight: three at once, three within 8 calls, one within 64, one
 * as late as it can be. */
static uint64_t delay(const sim_op *op)
{
    uint64_t random = draw(op, 1);
    switch (random % 8) {
    case 0:
    case 1:
    case 2:
        return 0;
    case 3:
    case 4:
    case 5:
        return 1 + (random >> 8) % 8;
    case 6:
        return 1 + (random >> 8) % 64;
    default:
        return SIM_LATEST_CALLS;
    }
}

static void choose(sim_op *op)
{
    op->state = SIM_OP_CHOSEN;
    switch (sim.settings.policy) {
    case STRATA_SIM_EARLY:
        op->order = op->sequence;
        break;
    case STRATA_SIM_RANDOM:
        op->order = draw(op, 2);
        break;
    case STRATA_SIM_LATE:
        op->order = UINT64_MAX - op->sequence;
        break;
    }
    sim_heap_push(&sim_order.chosen, op);
}

void sim_op_became_ready(sim_op *op)
{
    if (op->needed || sim.settings.policy == STRATA_SIM_EARLY || op->latest <= sim_order.calls) {
        choose(op);
        return;
    }
    uint64_t from = sim_order.calls + delay(op);
    bool waits = sim.settings.policy == STRATA_SIM_LATE || from > op->latest;
    op->state = SIM_OP_DELAYED;
    op->order = waits ? op->latest : from;
    sim_heap_push(&sim_order.delayed, op);
}

/* Whether an operation still has to be marked as needed. A running one waits for nothing. */
static bool to_be_marked(const sim_op *op)
{
    return !op->needed && op->state != SIM_OP_RUNNING;
}

static sim_op *mark(sim_op *op, sim_op *marked)
{
    op->needed = true;
    op->next_marked = marked;
    return op;
}

void sim_op_need(sim_op *op)
{
    if (sim_op_done(op) || !to_be_marked(op))
        return;
    sim_op *marked = mark(op, NULL);
    while (marked) {
        sim_op *at = marked;
        marked = marked->next_marked;
        for (sim_edge *edge = at->predecessors; edge; edge = edge->next_predecessor)
            if (to_be_marked(edge->from))
                marked = mark(edge->from, marked);
        if (at->state == SIM_OP_DELAYED) {
            sim_heap_remove(&sim_order.delayed, at);
            choose(at);
        }
    }
}

static void run_next(void)
{
    sim_op *op = sim_order.chosen.at[0];
    sim_heap_remove(&sim_order.chosen, op);
    op->state = SIM_OP_RUNNING;
    if (op->kind == SIM_OP_HOST && op->fault == CUDA_SUCCESS && op->context->device->poison == CUDA_SUCCESS) {
        sim_host_thread_give(op);
    } else if (sim_op_types[op->kind].reached && !sim_op_types[op->kind].reached(op)) {
        sim_op_watch(op);
    } else {
        sim_op_run(op);
        sim_op_complete(op);
    }
}

void sim_run_chosen(void)
{
    do {
        while (sim_order.chosen.count > 0)
            run_next();
    } while (sim_order.watching && sim_watched_run());
}

void sim_tick(void)
{
    sim_order.calls++;
    while (sim_order.delayed.count > 0 && sim_order.delayed.at[0]->order <= sim_order.calls) {
        sim_op *op = sim_order.delayed.at[0];
        sim_heap_remove(&sim_order.delayed, op);
        choose(op);
    }
    sim_run_chosen();
}

/* Waits for a signal of the host thread. Memory that waits for values read is polled, since other writers signal
 * nothing. */
static void wait_for_progress(void)
{
    enum { GLANCE_NS = 200000, SECOND_NS = 1000000000 };
    if (!sim_order.watching) {
        pthread_cond_wait(&sim.progress, &sim.lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += GLANCE_NS;
    if (until.tv_nsec >= SECOND_NS) {
        until.tv_nsec -= SECOND_NS;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&sim.progress, &sim.lock, &until);
}

/* Lets the operation run, which the caller holds, and waits until it is done. False if the driver ended meanwhile. */
static bool wait_until_done(sim_op *op)
{
    sim_op_need(op);
    sim_run_chosen();
    sim.inside++;
    while (!sim_op_done(op) && sim.phase == SIM_RUNNING) {
        wait_for_progress();
        sim_run_chosen();
    }
    sim.inside--;
    return sim.phase == SIM_RUNNING;
}

static CUresult wait_for(sim_context *context, sim_op *op, bool host_joins)
{
    sim_order.joined = false;
    if (op) {
        sim_op_hold(op);
        if (!wait_until_done(op))
            return CUDA_ERROR_DEINITIALIZED;
        sim_order.joined = false;
        if (host_joins)
            sim_host_join(&op->at);
        sim_op_drop(op);
    }
    return context->device->poison;
}

CUresult sim_op_wait(sim_context *context, sim_op *op)
{
    return wait_for(context, op, true);
}

CUresult sim_op_wait_without_host_edge(sim_context *context, sim_op *op)
{
    return wait_for(context, op, false);
}
