/* How copies, fills, allocations and frees run. */
#include "memory/memory.h"
#include <stdlib.h>
#include <string.h>

static char *reach(const sim_op *op, const sim_place *place, size_t bytes, bool write)
{
    return place->pageable
               ? (char *)(uintptr_t)place->address
               : sim_touch(op->context, place->address, bytes, place->peer ? SIM_BY_PEER_COPY : SIM_BY_COPY, write);
}

static bool copy(sim_op *op)
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

static uint64_t fill_bytes(const sim_op *op)
{
    uint64_t last_row = op->work.fill.width * op->work.fill.count;
    return op->work.fill.pitch * (op->work.fill.rows - 1) + last_row;
}

static bool fill(sim_op *op)
{
    char *to = sim_touch(op->context, op->work.fill.address, fill_bytes(op), SIM_BY_FILL, true);
    if (!to)
        return false;
    for (size_t row = 0; row < op->work.fill.rows; row++)
        fill_row(to + row * op->work.fill.pitch, op->work.fill.value, op->work.fill.width, op->work.fill.count);
    return true;
}

static bool allocate(sim_op *op)
{
    sim_block *block = op->work.block;
    sim_block_appear(block);
    if (block->allocation == op) {
        sim_op_drop(op);
        block->allocation = NULL;
    }
    return true;
}

static bool release(sim_op *op)
{
    sim_block *block = op->work.block;
    if (block->graph) {
        sim_hooks.graph->block_free(block);
        return true;
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
    return true;
}

static uint64_t bytes_of_copy(const sim_op *op)
{
    return op->work.copy.bytes;
}

static void discard_copy(sim_op *op)
{
    free(op->work.copy.staged);
}

static void discard_rows(sim_op *op)
{
    free(op->work.rows.staged);
}

/* Releases the block of a free that never runs. */
static void abandon_free(sim_op *op)
{
    if (!op->work.block->graph)
        free(op->work.block);
}

void sim_memory_types_open(void)
{
    sim_op_types[SIM_OP_COPY] = (sim_op_type){.run = copy, .discard = discard_copy, .bytes = bytes_of_copy};
    sim_op_types[SIM_OP_FILL] = (sim_op_type){.run = fill, .bytes = fill_bytes};
    sim_op_types[SIM_OP_COPY_ROWS] =
        (sim_op_type){.run = sim_rows_run, .discard = discard_rows, .bytes = sim_rows_bytes};
    sim_op_types[SIM_OP_ALLOCATE] = (sim_op_type){.run = allocate, .bookkeeping = true};
    sim_op_types[SIM_OP_FREE] = (sim_op_type){.run = release, .abandon = abandon_free, .bookkeeping = true};
    sim_op_types[SIM_OP_WRITE_VALUE] = (sim_op_type){.run = sim_value_write};
    sim_op_types[SIM_OP_WAIT_VALUE] = (sim_op_type){.reached = sim_value_reached};
}
