/* What an operation does when it runs. After an illegal access work is no longer done, only its bookkeeping. */
#include "check/check.h"
#include <stdlib.h>
#include <string.h>

/* Where the process finds the bytes of one end of a copy, or NULL. */
static char *reach(const sim_op *op, const sim_place *place, size_t bytes, bool write)
{
    return place->pageable ? (char *)(uintptr_t)place->address
                           : sim_touch(op->context, place->address, bytes, SIM_BY_COPY, write);
}

static bool copy(const sim_op *op)
{
    size_t bytes = op->work.copy.bytes;
    const char *from = op->work.copy.staged ? op->work.copy.staged : reach(op, &op->work.copy.from, bytes, false);
    char *to = reach(op, &op->work.copy.to, bytes, true);
    if (!from || !to)
        return false;
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
        for (size_t i = 0; i < count; i++)
            at[i] = (uint16_t)value;
        return;
    }
    uint32_t *at = (uint32_t *)(void *)row;
    for (size_t i = 0; i < count; i++)
        at[i] = value;
}

static size_t fill_bytes(const sim_op *op)
{
    size_t last_row = op->work.fill.width * op->work.fill.count;
    return op->work.fill.pitch * (op->work.fill.rows - 1) + last_row;
}

static bool fill(const sim_op *op)
{
    char *to = sim_touch(op->context, op->work.fill.address, fill_bytes(op), SIM_BY_FILL, true);
    if (!to)
        return false;
    for (size_t row = 0; row < op->work.fill.rows; row++)
        fill_row(to + row * op->work.fill.pitch, op->work.fill.value, op->work.fill.width, op->work.fill.count);
    return true;
}

static void allocate(sim_op *op)
{
    sim_block *block = op->work.block;
    sim_block_appear(block);
    if (block->allocation == op) {
        sim_op_drop(op);
        block->allocation = NULL;
    }
}

static void release(sim_op *op)
{
    sim_block *block = op->work.block;
    if (block->graph) {
        sim_graph_block_free(block);
        return;
    }
    sim_block_vanish(block);
    if (op->span) {
        sim_space_freed(op->span);
        op->span = NULL;
    }
    if (block->pool)
        sim_pool_block_gone(block->pool);
    else
        sim_space_give(block->span, NULL);
    free(block);
}

static void poison(const sim_op *op)
{
    op->context->device->poison = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static strata_sim_work kind_of(const sim_op *op)
{
    switch (op->kind) {
    case SIM_OP_COPY:
    case SIM_OP_COPY_ROWS:
        return STRATA_SIM_WORK_COPY;
    case SIM_OP_FILL:
        return STRATA_SIM_WORK_FILL;
    case SIM_OP_KERNEL:
        return STRATA_SIM_WORK_KERNEL;
    case SIM_OP_HOST:
        return STRATA_SIM_WORK_HOST_FUNCTION;
    case SIM_OP_ALLOCATE:
    case SIM_OP_FREE:
        return STRATA_SIM_WORK_MEMORY;
    case SIM_OP_MARK:
    case SIM_OP_WRITE_VALUE:
    case SIM_OP_WAIT_VALUE:
        break;
    }
    return STRATA_SIM_WORK_EVENT;
}

static uint64_t bytes_of(const sim_op *op)
{
    if (op->kind == SIM_OP_COPY)
        return op->work.copy.bytes;
    if (op->kind == SIM_OP_COPY_ROWS)
        return sim_rows_bytes(op);
    return op->kind == SIM_OP_FILL ? fill_bytes(op) : 0;
}

/* Simulated time: what a fast device would have needed, so that events measure something that repeats. */
static uint64_t duration(const sim_op *op)
{
    strata_sim_work kind = kind_of(op);
    uint64_t rate = sim.settings.rate[kind];
    return sim.settings.latency[kind] + (rate > 0 ? bytes_of(op) * 1000 / rate : 0);
}

static void work(sim_op *op)
{
    bool done = true;
    if (op->kind == SIM_OP_COPY)
        done = copy(op);
    else if (op->kind == SIM_OP_FILL)
        done = fill(op);
    else if (op->kind == SIM_OP_KERNEL)
        done = sim_kernel_run(op);
    else if (op->kind == SIM_OP_COPY_ROWS)
        done = sim_rows_run(op);
    else if (op->kind == SIM_OP_WRITE_VALUE)
        sim_value_write(op);
    if (!done)
        poison(op);
}

void sim_op_discard(sim_op *op)
{
    if (op->kind == SIM_OP_COPY)
        free(op->work.copy.staged);
    else if (op->kind == SIM_OP_COPY_ROWS)
        free(op->work.rows.staged);
    else if (op->kind == SIM_OP_KERNEL)
        free(op->work.kernel);
}

void sim_op_run(sim_op *op)
{
    op->context->device->time += duration(op);
    sim_check_running(op);
    sim_in_flight_run(op);
    if (op->fault != CUDA_SUCCESS && op->context->device->poison == CUDA_SUCCESS)
        op->context->device->poison = op->fault;
    if (op->kind == SIM_OP_ALLOCATE)
        allocate(op);
    else if (op->kind == SIM_OP_FREE)
        release(op);
    else if (op->context->device->poison == CUDA_SUCCESS)
        work(op);
    sim_op_discard(op);
}
