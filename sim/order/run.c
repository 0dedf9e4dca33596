/* Runs operations by their type. After a failure of the device only bookkeeping is done. */
#include "order/order.h"

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
    case SIM_OP_CONDITIONAL:
        break;
    }
    return STRATA_SIM_WORK_EVENT;
}

/* Simulated time of an operation in ns, which is the same in every run. */
static uint64_t duration(const sim_op *op)
{
    strata_sim_work kind = kind_of(op);
    uint64_t rate = sim.settings.rate[kind];
    uint64_t (*bytes)(const sim_op *) = sim_op_types[op->kind].bytes;
    return sim.settings.latency[kind] + (rate > 0 && bytes ? bytes(op) * 1000 / rate : 0);
}

void sim_op_discard(sim_op *op)
{
    if (sim_op_types[op->kind].discard)
        sim_op_types[op->kind].discard(op);
}

static void run(sim_op *op)
{
    const sim_op_type *type = &sim_op_types[op->kind];
    op->context->device->time += duration(op);
    if (sim_hooks.check->on)
        sim_hooks.check->running(op);
    if (sim_hooks.memory->running)
        sim_hooks.memory->running(op);
    if (op->fault != CUDA_SUCCESS && op->context->device->poison == CUDA_SUCCESS)
        op->context->device->poison = op->fault;
    bool runs = type->run && (type->bookkeeping || op->context->device->poison == CUDA_SUCCESS);
    if (runs && !type->run(op))
        poison(op);
}

void sim_op_run(sim_op *op)
{
    run(op);
    sim_op_discard(op);
}

void sim_op_run_part(sim_op *op)
{
    op->told = op->part_of->told;
    sim_op_begin_part(op);
    op->state = SIM_OP_RUNNING;
    run(op);
    sim_op_complete(op);
    sim_op_end_part(op);
}
