/* Values that streams write and wait for. */
#include "memory/memory.h"
#include <stdatomic.h>
#include <string.h>

/* Whether the block may hold such values: pools' and managed memory may not. */
static bool has_values(const sim_block *block)
{
    return block && (sim_block_is_host(block) || block->kind == SIM_BLOCK_DEVICE || block->kind == SIM_BLOCK_MAPPED);
}

/* Access to mapped memory is checked when the operation runs. */
static bool reachable(const sim_queue *queue, const sim_value_request *value, bool write)
{
    const sim_block *block = sim_block_at(value->address);
    if (value->address % value->width != 0 || !has_values(block))
        return false;
    return block->kind == SIM_BLOCK_MAPPED ||
           sim_may_touch(queue->context, value->address, value->width, SIM_BY_KERNEL, write);
}

bool sim_value_readable(const sim_value_request *value)
{
    const sim_block *block = sim_block_present(value->address, value->width);
    return value->address % value->width == 0 && has_values(block);
}

CUresult sim_value_check(const sim_queue *queue, const sim_value_request *value, bool write)
{
    unsigned comparison = value->flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
    bool flush = value->flags != comparison;
    bool known = write ? value->flags == 0 : comparison <= CU_STREAM_WAIT_VALUE_NOR;
    if (!known || !reachable(queue, value, write))
        return CUDA_ERROR_INVALID_VALUE;
    return flush ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult sim_value_submit(sim_queue *queue, const sim_value_request *value, bool write)
{
    if (!write && !queue->capture && sim_fault_drops(STRATA_SIM_EDGE_VALUE_WAIT))
        return CUDA_SUCCESS;
    sim_op *op = sim_op_create(queue->context, queue, write ? SIM_OP_WRITE_VALUE : SIM_OP_WAIT_VALUE, 0);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->work.value.address = value->address;
    op->work.value.value = value->value;
    op->work.value.width = value->width;
    op->work.value.flags = value->flags;
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

/* ---- running ---- */

/* Returns the value's bytes; if they are not there, poisons the device, and returns NULL. */
static char *reach(const sim_op *op, bool write)
{
    char *at = sim_touch(op->context, op->work.value.address, op->work.value.width, SIM_BY_KERNEL, write);
    if (!at)
        op->context->device->poison = CUDA_ERROR_LAUNCH_FAILED;
    return at;
}

/* Atomic: the host may use the memory meanwhile. */
bool sim_value_write(sim_op *op)
{
    char *at = reach(op, true);
    if (at && op->work.value.width == sizeof(uint32_t))
        atomic_store((_Atomic uint32_t *)(void *)at, (uint32_t)op->work.value.value);
    else if (at)
        atomic_store((_Atomic uint64_t *)(void *)at, op->work.value.value);
    return true;
}

/* The driver's comparisons. "At least" is cyclic: half of all values are ahead of any one. */
bool sim_value_satisfies(uint64_t found, uint64_t value, unsigned width, unsigned flags)
{
    uint64_t mask = width == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX;
    uint64_t half = mask / 2 + 1;
    switch (flags) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == (value & mask);
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return (~(found | value) & mask) != 0;
    default:
        return ((found - value) & half) == 0;
    }
}

static uint64_t load(const char *at, unsigned width)
{
    return width == sizeof(uint32_t) ? atomic_load((const _Atomic uint32_t *)(const void *)at)
                                     : atomic_load((const _Atomic uint64_t *)(const void *)at);
}

static bool satisfies(const sim_op *op, const char *at)
{
    unsigned width = op->work.value.width;
    return sim_value_satisfies(load(at, width), op->work.value.value, width, op->work.value.flags);
}

bool sim_value_found(const sim_value_request *value)
{
    sim_block *block = sim_block_present(value->address, value->width);
    if (!block)
        return false;
    sim_bytes_landed(&block->in_flight);
    uint64_t found = load(block->memory + (value->address - block->address), value->width);
    return sim_value_satisfies(found, value->value, value->width, value->flags);
}

void sim_value_bytes(const char *word, unsigned used, unsigned char *bytes)
{
    for (unsigned half = 0; half < 2; half++) {
        if ((used >> (4 * half) & 0xfU) == 0)
            continue;
        uint32_t found = atomic_load((const _Atomic uint32_t *)(const void *)(word + 4 * half));
        memcpy(bytes + 4 * half, &found, sizeof found);
    }
}

bool sim_value_reached(sim_op *op)
{
    if (op->context->device->poison != CUDA_SUCCESS)
        return true;
    char *at = reach(op, false);
    return !at || satisfies(op, at);
}

/* ---- batches ---- */

static sim_value_request value_of(const CUstreamBatchMemOpParams *op)
{
    bool wide = op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    return (sim_value_request){
        .address = op->writeValue.address, /* waits have the same layout */
        .value = wide ? op->writeValue.value64 : op->writeValue.value,
        .width = wide ? sizeof(cuuint64_t) : sizeof(cuuint32_t),
        .flags = op->writeValue.flags,
    };
}

static bool is_write(const CUstreamBatchMemOpParams *op)
{
    return op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool is_wait(const CUstreamBatchMemOpParams *op)
{
    return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static CUresult check_one(const sim_queue *queue, const CUstreamBatchMemOpParams *op)
{
    if (is_write(op) || is_wait(op)) {
        sim_value_request value = value_of(op);
        return sim_value_check(queue, &value, is_write(op));
    }
    if (op->operation == CU_STREAM_MEM_OP_BARRIER)
        return op->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    bool flush = op->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    return flush ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

/* All are checked before the first is submitted. Barriers do nothing: memory is seen in order here. */
CUresult sim_values_submit(sim_queue *queue, unsigned count, const CUstreamBatchMemOpParams *ops)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check_one(queue, &ops[i]);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (is_write(&ops[i]) || is_wait(&ops[i])) {
            sim_value_request value = value_of(&ops[i]);
            result = sim_value_submit(queue, &value, is_write(&ops[i]));
        }
    }
    return result;
}
