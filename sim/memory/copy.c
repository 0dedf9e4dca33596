/* Copies and fills. Ends of a copy are device, pinned or plain host memory, told by address where the call does not
 * say. Plain host memory is read at the call, and written before the call returns; pinned memory, when the work runs.
 */
#include "memory/memory.h"
#include <stdlib.h>
#include <string.h>

bool sim_locate(const sim_context *context, uint64_t address, size_t bytes, sim_side side, bool write, bool graphs,
                sim_place *place)
{
    static const CUmemorytype called[] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE,
                                          CU_MEMORYTYPE_UNIFIED};
    place->address = address;
    place->pageable = false;
    place->peer = side == SIM_PEER_SIDE;
    place->called = called[side];
    if (sim_block_at(address))
        return sim_may_touch(context, address, bytes, place->peer ? SIM_BY_PEER_COPY : SIM_BY_COPY, write);
    if (graphs && sim_hooks.graph->memory_around(address, bytes))
        return true;
    place->pageable = true;
    return (side == SIM_HOST_SIDE || side == SIM_ANY_SIDE) && address != 0;
}

static CUresult submit_copy(sim_queue *queue, const sim_place *to, const sim_place *from, size_t bytes, sim_op **op)
{
    void *staged = NULL;
    if (from->pageable && !queue->capture) {
        staged = malloc(bytes);
        if (!staged)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(staged, (const void *)(uintptr_t)from->address, bytes);
    }
    sim_op *made = sim_op_create(queue->context, queue, SIM_OP_COPY, 0);
    if (!made) {
        free(staged);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->work.copy.to = *to;
    made->work.copy.from = *from;
    made->work.copy.bytes = bytes;
    made->work.copy.staged = staged;
    *op = sim_op_hold(made);
    sim_op_submit(made);
    return CUDA_SUCCESS;
}

bool sim_copy_on_host(uint64_t address)
{
    const sim_block *block = sim_block_at(address);
    return !block || sim_block_is_host(block) || block->kind == SIM_BLOCK_MANAGED;
}

CUresult sim_copy_prepare(sim_queue *queue, const sim_place *from, bool synchronous)
{
    if (!synchronous || !from->pageable)
        return CUDA_SUCCESS;
    const sim_context *context = queue->context;
    const uint64_t instance = context->instance;
    CUresult result = sim_queue_wait(queue);
    return result != CUDA_SUCCESS || sim_context_lasts(context, instance) ? result : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* From pageable to device memory a synchronous copy returns when the bytes are staged; the device may not have them yet
 * (CUDA Driver API, "API synchronization behavior"). */
CUresult sim_copy_finish(sim_context *context, sim_op *op, const sim_place *to, const sim_place *from, bool synchronous)
{
    bool host = sim_copy_on_host(to->address) || (!from->pageable && sim_copy_on_host(from->address));
    bool waits = to->pageable || (synchronous && host);
    CUresult result = waits ? sim_op_wait(context, op) : CUDA_SUCCESS;
    sim_op_drop(op);
    return result;
}

CUresult sim_copy_submit(const sim_copy_request *copy, CUstream stream, bool synchronous)
{
    sim_queue *queue;
    sim_place to;
    sim_place from;
    CUresult result = sim_queue_for_work(stream, &queue);
    if (result == CUDA_SUCCESS && synchronous)
        result = sim_capture_guard_queue(queue);
    if (result != CUDA_SUCCESS || copy->bytes == 0)
        return result;
    sim_context *context = queue->context;
    bool captured = queue->capture != NULL;
    if (!sim_locate(context, copy->to, copy->bytes, copy->to_side, true, captured, &to) ||
        !sim_locate(context, copy->from, copy->bytes, copy->from_side, false, captured, &from))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_copy_prepare(queue, &from, synchronous);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op *op;
    result = submit_copy(queue, &to, &from, copy->bytes, &op);
    return result == CUDA_SUCCESS ? sim_copy_finish(context, op, &to, &from, synchronous) : result;
}

sim_copy_request sim_copy_host_to_device(CUdeviceptr to, const void *from, size_t bytes)
{
    return (sim_copy_request){to, (uint64_t)(uintptr_t)from, bytes, SIM_DEVICE_SIDE, SIM_HOST_SIDE};
}

sim_copy_request sim_copy_device_to_host(void *to, CUdeviceptr from, size_t bytes)
{
    return (sim_copy_request){(uint64_t)(uintptr_t)to, from, bytes, SIM_HOST_SIDE, SIM_DEVICE_SIDE};
}

sim_copy_request sim_copy_device_to_device(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (sim_copy_request){to, from, bytes, SIM_DEVICE_SIDE, SIM_DEVICE_SIDE};
}

sim_copy_request sim_copy_between_peers(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (sim_copy_request){to, from, bytes, SIM_PEER_SIDE, SIM_PEER_SIDE};
}

sim_copy_request sim_copy_any(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (sim_copy_request){to, from, bytes, SIM_ANY_SIDE, SIM_ANY_SIDE};
}

/* ---- fills ---- */

/* Bytes of a fill from its first to its last; 0: more than any memory has. */
static uint64_t extent_of(const sim_fill_request *fill)
{
    uint64_t row = fill->count > SIM_MOST_MEMORY ? 0 : (uint64_t)fill->width * fill->count;
    if (row == 0 || fill->rows == 1)
        return row;
    if (fill->pitch < row || fill->rows > SIM_MOST_MEMORY || fill->pitch > SIM_MOST_MEMORY / fill->rows)
        return 0;
    return (uint64_t)fill->pitch * (fill->rows - 1) + row;
}

CUresult sim_fill_submit(const sim_fill_request *fill, CUstream stream)
{
    sim_queue *queue;
    CUresult result = sim_queue_for_work(stream, &queue);
    if (result != CUDA_SUCCESS || fill->count == 0 || fill->rows == 0)
        return result;
    uint64_t extent = extent_of(fill);
    bool aligned = fill->address % fill->width == 0 && (fill->rows == 1 || fill->pitch % fill->width == 0);
    /* A captured fill's target is checked at instantiation (graph/exec.c). */
    bool good = queue->capture || sim_may_touch(queue->context, fill->address, extent, SIM_BY_FILL, true);
    if (extent == 0 || !aligned || !good)
        return CUDA_ERROR_INVALID_VALUE;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_FILL, 0);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->work.fill.address = fill->address;
    op->work.fill.value = fill->value;
    op->work.fill.width = fill->width;
    op->work.fill.count = fill->count;
    op->work.fill.pitch = fill->pitch;
    op->work.fill.rows = fill->rows;
    sim_op_submit(op);
    return CUDA_SUCCESS;
}
