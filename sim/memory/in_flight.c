/* Bytes on their way to the host, for memory debuggers: closed from the call for a copy or a fill into pinned,
 * registered or managed memory until it runs, when a host read finds old bytes and a host write is lost. A debugger
 * reports a missing wait where the schedule shows it, always under the policy late; the checker reports it under any.
 *
 * There are no false alarms, at the price of some silence. Nothing is closed while a host function or a wait for a
 * value is under way: the host may be about to release the stream, and use the memory before. An allocation opens as
 * soon as any work touches it. Kernels declare writes when they run, which is too late. */
#include "memory/memory.h"

static sim_block *block_of(const sim_place *place)
{
    sim_block *block = place->pageable ? NULL : sim_block_at(place->address);
    return block && (sim_block_is_host(block) || block->kind == SIM_BLOCK_MANAGED) ? block : NULL;
}

/* Where work writes: equal rows. */
typedef struct copy_target {
    sim_place place;
    uint64_t width;
    uint64_t rows;
    uint64_t pitch;
    uint64_t planes;
    uint64_t plane;
} copy_target;

static bool target_of(const sim_op *op, copy_target *target)
{
    switch (op->kind) {
    case SIM_OP_COPY:
        *target = (copy_target){.place = op->work.copy.to, .width = op->work.copy.bytes, .rows = 1, .planes = 1};
        return true;
    case SIM_OP_FILL:
        *target = (copy_target){.place = {.address = op->work.fill.address},
                                .width = op->work.fill.width * op->work.fill.count,
                                .rows = op->work.fill.rows,
                                .pitch = op->work.fill.pitch,
                                .planes = 1};
        return true;
    case SIM_OP_COPY_ROWS:
        *target = (copy_target){.place = op->work.rows.to.place,
                                .width = op->work.rows.width,
                                .rows = op->work.rows.rows,
                                .pitch = op->work.rows.to.pitch,
                                .planes = op->work.rows.planes,
                                .plane = op->work.rows.to.plane};
        return true;
    default:
        return false;
    }
}

void sim_in_flight_begin(const sim_op *op)
{
    copy_target target;
    if (sim_order.held_by_host > 0 || !sim_debugger_is_there() || !target_of(op, &target))
        return;
    sim_block *block = block_of(&target.place);
    for (uint64_t plane = 0; block && plane < target.planes; plane++) {
        for (uint64_t row = 0; row < target.rows; row++) {
            uint64_t address = target.place.address + plane * target.plane + row * target.pitch;
            sim_bytes_in_flight(&block->in_flight, (const char *)(uintptr_t)address, target.width);
        }
    }
}

void sim_in_flight_run(const sim_op *op)
{
    copy_target target;
    bool writes = sim_debugger_is_there() && target_of(op, &target);
    sim_block *block = writes ? block_of(&target.place) : NULL;
    if (block)
        sim_bytes_landed(&block->in_flight);
}
