/* The queues behind streams, and the order that streams have without being told: within a stream, and between the
 * legacy stream and every stream of its context that was not created non-blocking. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

static bool find_slot(uint32_t *slot)
{
    for (uint32_t i = 0; i < sim.queue_slots; i++) {
        if (!sim.queues[i]) {
            *slot = i;
            return true;
        }
    }
    uint32_t slots = sim.queue_slots ? 2 * sim.queue_slots : 16;
    struct sim_queue **queues = realloc(sim.queues, slots * sizeof(*queues));
    if (!queues) {
        return false;
    }
    memset(queues + sim.queue_slots, 0, (slots - sim.queue_slots) * sizeof(*queues));
    *slot = sim.queue_slots;
    sim.queues = queues;
    sim.queue_slots = slots;
    return true;
}

struct sim_queue *sim_queue_open(sim_context *context, enum sim_queue_kind kind, unsigned flags, int priority)
{
    uint32_t slot;
    struct sim_queue *queue = calloc(1, sizeof *queue);
    if (!queue || !find_slot(&slot)) {
        free(queue);
        return NULL;
    }
    queue->kind = kind;
    queue->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    queue->context = context;
    queue->slot = slot;
    queue->uid = ++sim.last_uid;
    queue->flags = flags;
    queue->priority = priority;
    queue->next = context->queues;
    if (queue->next) {
        queue->next->previous = queue;
    }
    context->queues = queue;
    context->queue_count++;
    sim.queues[slot] = queue;
    return queue;
}

bool sim_queue_alive(uint32_t slot, uint64_t uid)
{
    return uid != 0 && slot < sim.queue_slots && sim.queues[slot] && sim.queues[slot]->uid == uid;
}

void sim_queue_free(struct sim_queue *queue)
{
    sim_context *context = queue->context;
    for (int i = 0; i < sim.settings.devices; i++) {
        for (struct sim_space *space = sim.devices[i].spaces; space; space = space->next) {
            sim_space_forget_queue(space, queue);
        }
    }
    if (queue->previous) {
        queue->previous->next = queue->next;
    } else {
        context->queues = queue->next;
    }
    if (queue->next) {
        queue->next->previous = queue->previous;
    }
    context->queue_count--;
    sim.queues[queue->slot] = NULL;
    sim_clock_drop(queue->knows);
    free(queue);
}

void sim_queue_close(struct sim_queue *queue)
{
    queue->closed = true;
    if (!queue->tail) {
        sim_queue_free(queue);
    }
}

void sim_queue_finished(struct sim_queue *queue, struct sim_op *op)
{
    if (queue->tail != op) {
        return;
    }
    queue->tail = NULL;
    queue->polls = 0;
    if (queue->closed) {
        sim_queue_free(queue);
    }
}

size_t sim_queue_order_room(const struct sim_queue *queue)
{
    return queue->kind == SIM_QUEUE_LEGACY ? queue->context->queue_count + 1 : 2;
}

static void come_after(struct sim_queue *queue, struct sim_op *op, const struct sim_queue *other)
{
    sim_op_depend(op, other->tail);
    if (sim_clock_position(queue->knows, other->slot, other->uid) < other->submitted) {
        sim_queue_learn(queue, other->slot, other->uid, other->submitted, other->knows);
    }
}

void sim_queue_order(struct sim_queue *queue, struct sim_op *op)
{
    sim_context *context = queue->context;
    sim_op_depend(op, queue->tail);
    if (queue->kind == SIM_QUEUE_LEGACY) {
        for (struct sim_queue *other = context->queues; other; other = other->next) {
            if (other != queue && other->blocking) {
                come_after(queue, op, other);
            }
        }
    } else if (queue->blocking) {
        come_after(queue, op, context->legacy);
    }
    op->position = ++queue->submitted;
    queue->tail = op;
}

static CUresult default_queue(CUstream stream, struct sim_queue **queue)
{
    sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *queue = stream == CU_STREAM_PER_THREAD ? sim_thread_queue(context) : context->legacy;
    return *queue ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_queue_of(CUstream stream, struct sim_queue **queue)
{
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        return default_queue(stream, queue);
    }
    /* The one kindness of this driver: the real one crashes on the handle of a destroyed stream. */
    if (!sim_slab_has(&sim.streams, stream)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *queue = stream->queue;
    return sim_context_check((*queue)->context);
}

/* Waits for the tails of all queues that `counts` picks, through one operation that comes after them. */
static CUresult wait_for(sim_context *context, bool only_blocking)
{
    struct sim_op *join = sim_op_create(context, NULL, SIM_OP_MARK, context->queue_count);
    if (!join) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (struct sim_queue *queue = context->queues; queue; queue = queue->next) {
        if (queue->blocking || !only_blocking) {
            sim_op_depend(join, queue->tail);
        }
    }
    sim_op_hold(join);
    sim_op_submit(join);
    CUresult result = sim_op_wait(context, join);
    sim_op_drop(join);
    return result;
}

static struct sim_seen seen_of(const struct sim_queue *queue)
{
    return (struct sim_seen){queue->slot, queue->uid, queue->submitted, queue->knows};
}

static CUresult wait_for_blocking(sim_context *context)
{
    CUresult result = wait_for(context, true);
    for (struct sim_queue *queue = context->queues; result == CUDA_SUCCESS && queue; queue = queue->next) {
        if (queue->blocking) {
            struct sim_seen seen = seen_of(queue);
            sim_device_observe(context->device, &seen);
        }
    }
    return result;
}

/* The stream may have got more work, or be gone, when the wait is over. */
CUresult sim_queue_wait(struct sim_queue *queue)
{
    sim_context *context = queue->context;
    if (queue->kind == SIM_QUEUE_LEGACY) {
        return wait_for_blocking(context);
    }
    struct sim_seen seen = seen_of(queue);
    sim_clock_hold(seen.knows);
    CUresult result = sim_op_wait(context, queue->tail);
    if (result == CUDA_SUCCESS) {
        sim_device_observe(context->device, &seen);
    }
    sim_clock_drop(seen.knows);
    return result;
}

CUresult sim_context_wait(sim_context *context)
{
    CUresult result = wait_for(context, false);
    if (result == CUDA_SUCCESS) {
        sim_device_observe(context->device, NULL);
    }
    return result;
}
