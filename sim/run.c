/* What an operation does when it runs. After an illegal access work is no longer done, only its bookkeeping. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

/* Where the process finds the bytes of one end of a copy, or NULL. */
static char *reach(const struct sim_place *place, size_t bytes)
{
    return place->pageable ? (char *)(uintptr_t)place->address : sim_memory_at(place->address, bytes);
}

static bool copy(const struct sim_op *op)
{
    size_t bytes = op->work.copy.bytes;
    const char *from = op->work.copy.staged ? op->work.copy.staged : reach(&op->work.copy.from, bytes);
    char *to = reach(&op->work.copy.to, bytes);
    if (!from || !to) {
        return false;
    }
    memmove(to, from, bytes);
    return true;
}

static void fill_row(char *row, uint32_t value, size_t width, size_t count)
{
    if (width == 1) {
        memset(row, (int)(value & 0xff), count);
        return;
    }
    if (width == 2) {
        uint16_t *at = (uint16_t *)(void *)row;
        for (size_t i = 0; i < count; i++) {
            at[i] = (uint16_t)value;
        }
        return;
    }
    uint32_t *at = (uint32_t *)(void *)row;
    for (size_t i = 0; i < count; i++) {
        at[i] = value;
    }
}

static size_t fill_bytes(const struct sim_op *op)
{
    size_t last_row = op->work.fill.width * op->work.fill.count;
    return op->work.fill.pitch * (op->work.fill.rows - 1) + last_row;
}

static bool fill(const struct sim_op *op)
{
    char *to = sim_memory_at(op->work.fill.address, fill_bytes(op));
    if (!to) {
        return false;
    }
    for (size_t row = 0; row < op->work.fill.rows; row++) {
        fill_row(to + row * op->work.fill.pitch, op->work.fill.value, op->work.fill.width, op->work.fill.count);
    }
    return true;
}

static void allocate(struct sim_op *op)
{
    struct sim_block *block = op->work.block;
    sim_block_appear(block);
    sim_op_drop(block->allocation);
    block->allocation = NULL;
}

static void release(struct sim_op *op)
{
    struct sim_block *block = op->work.block;
    sim_block_vanish(block);
    if (op->span) {
        sim_space_freed(op->span);
        op->span = NULL;
    }
    if (block->pool) {
        sim_pool_block_gone(block->pool);
    } else {
        sim_space_give(block->span, NULL);
    }
    free(block);
}

static void poison(const struct sim_op *op)
{
    op->context->device->poison = CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* Simulated time: what a fast device would have needed, so that events measure something that repeats. */
static uint64_t duration(const struct sim_op *op)
{
    enum { SHORT = 100, LAUNCH = 2000, BYTES_PER_NS = 4000 };
    switch (op->kind) {
    case SIM_OP_MARK:
    case SIM_OP_ALLOCATE:
    case SIM_OP_FREE:
        return SHORT;
    case SIM_OP_COPY:
        return LAUNCH + op->work.copy.bytes / BYTES_PER_NS;
    case SIM_OP_FILL:
        return LAUNCH + fill_bytes(op) / BYTES_PER_NS;
    case SIM_OP_KERNEL:
    case SIM_OP_HOST:
        break;
    }
    return LAUNCH;
}

static void work(struct sim_op *op)
{
    bool done = true;
    if (op->kind == SIM_OP_COPY) {
        done = copy(op);
    } else if (op->kind == SIM_OP_FILL) {
        done = fill(op);
    } else if (op->kind == SIM_OP_KERNEL) {
        done = sim_kernel_run(op);
    }
    if (!done) {
        poison(op);
    }
}

void sim_op_discard(struct sim_op *op)
{
    if (op->kind == SIM_OP_COPY) {
        free(op->work.copy.staged);
    } else if (op->kind == SIM_OP_KERNEL) {
        free(op->work.kernel);
    }
}

void sim_op_run(struct sim_op *op)
{
    op->context->device->time += duration(op);
    if (op->kind == SIM_OP_ALLOCATE) {
        allocate(op);
    } else if (op->kind == SIM_OP_FREE) {
        release(op);
    } else if (op->context->device->poison == CUDA_SUCCESS) {
        work(op);
    }
    sim_op_discard(op);
}
