/* Copies and fills. Ends of a copy are device memory, pinned memory or plain host memory, found out by address where
 * the call does not say. What plain host memory holds is read when the copy is called for, and it is written before the
 * call returns; with pinned memory both happen when the work runs. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

bool sim_locate(const sim_context *context, uint64_t address, size_t bytes, sim_side side, bool write, bool graphs,
                sim_place *place)
{
    static const CUmemorytype called[] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED};
    place->address = address;
    place->pageable = false;
    place->called = called[side];
    if (sim_block_at(address))
        return sim_may_touch(context, address, bytes, SIM_BY_COPY, write);
    if (graphs && sim_graph_memory_around(address, bytes))
        return true;
    place->pageable = true;
    return side != SIM_DEVICE_SIDE && address != 0;
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

typedef struct copy_request {
    uint64_t to;
    uint64_t from;
    size_t bytes;
    sim_side to_side;
    sim_side from_side;
} copy_request;

static bool on_host(uint64_t address)
{
    const sim_block *block = sim_block_at(address);
    return !block || sim_block_is_host(block) || block->kind == SIM_BLOCK_MANAGED;
}

CUresult sim_copy_prepare(sim_queue *queue, const sim_place *from, bool synchronous)
{
    return synchronous && from->pageable ? sim_queue_wait(queue) : CUDA_SUCCESS;
}

CUresult sim_copy_finish(sim_context *context, sim_op *op, const sim_place *to, const sim_place *from, bool synchronous)
{
    bool host = on_host(to->address) || on_host(from->address);
    bool waits = to->pageable || (synchronous && host);
    CUresult result = waits ? sim_op_wait(context, op) : CUDA_SUCCESS;
    sim_op_drop(op);
    return result;
}

/* Copies in the order of a stream. */
static CUresult copy(const copy_request *copy, CUstream stream, bool synchronous)
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

static CUresult copy_call(const char *entry, const copy_request *what, CUstream stream, bool synchronous)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(copy(what, stream, synchronous));
}

static copy_request host_to_device(CUdeviceptr to, const void *from, size_t bytes)
{
    return (copy_request){to, (uint64_t)(uintptr_t)from, bytes, SIM_DEVICE_SIDE, SIM_HOST_SIDE};
}

static copy_request device_to_host(void *to, CUdeviceptr from, size_t bytes)
{
    return (copy_request){(uint64_t)(uintptr_t)to, from, bytes, SIM_HOST_SIDE, SIM_DEVICE_SIDE};
}

static copy_request device_to_device(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (copy_request){to, from, bytes, SIM_DEVICE_SIDE, SIM_DEVICE_SIDE};
}

static copy_request generic(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (copy_request){to, from, bytes, SIM_ANY_SIDE, SIM_ANY_SIDE};
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    copy_request what = host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    copy_request what = device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    copy_request what = device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    copy_request what = generic(dst, src, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    copy_request what = host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    copy_request what = device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    copy_request what = device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    copy_request what = generic(dst, src, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    copy_request what = host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    copy_request what = device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    copy_request what = device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    copy_request what = generic(dst, src, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

/* ---- fills ---- */

typedef struct fill_request {
    uint64_t address;
    uint32_t value;
    size_t width;
    size_t count;
    size_t pitch;
    size_t rows;
} fill_request;

/* The bytes from the first to the last, or 0 if they are more than any memory has. */
static uint64_t extent_of(const fill_request *fill)
{
    uint64_t row = fill->count > SIM_MOST_MEMORY ? 0 : (uint64_t)fill->width * fill->count;
    if (row == 0 || fill->rows == 1)
        return row;
    if (fill->pitch < row || fill->rows > SIM_MOST_MEMORY || fill->pitch > SIM_MOST_MEMORY / fill->rows)
        return 0;
    return (uint64_t)fill->pitch * (fill->rows - 1) + row;
}

static CUresult fill(const fill_request *fill, CUstream stream)
{
    sim_queue *queue;
    CUresult result = sim_queue_for_work(stream, &queue);
    if (result != CUDA_SUCCESS || fill->count == 0 || fill->rows == 0)
        return result;
    uint64_t extent = extent_of(fill);
    bool aligned = fill->address % fill->width == 0 && (fill->rows == 1 || fill->pitch % fill->width == 0);
    /* Where a captured fill goes is looked at when its graph is made one that can be launched. */
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

static CUresult fill_call(const char *entry, const fill_request *what, CUstream stream)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(fill(what, stream));
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    fill_request what = {dstDevice, uc, 1, N, 0, 1};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    fill_request what = {dstDevice, us, 2, N, 0, 1};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    fill_request what = {dstDevice, ui, 4, N, 0, 1};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
                           CUstream hStream)
{
    fill_request what = {dstDevice, uc, 1, Width, dstPitch, Height};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
                            CUstream hStream)
{
    fill_request what = {dstDevice, us, 2, Width, dstPitch, Height};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
                            CUstream hStream)
{
    fill_request what = {dstDevice, ui, 4, Width, dstPitch, Height};
    return fill_call(__func__, &what, hStream);
}

/* The host does not wait for a fill of device memory; one that ends in pinned memory it does wait for. */
static CUresult fill_now(const char *entry, const fill_request *what, CUstream stream)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = fill(what, stream);
    if (result == CUDA_SUCCESS && what->count > 0 && what->rows > 0 && on_host(what->address)) {
        sim_queue *queue;
        result = sim_queue_of(stream, &queue);
        result = result == CUDA_SUCCESS ? sim_op_wait(queue->context, queue->tail) : result;
    }
    return sim_leave(result);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    fill_request what = {dstDevice, uc, 1, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    fill_request what = {dstDevice, us, 2, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    fill_request what = {dstDevice, ui, 4, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    fill_request what = {dstDevice, uc, 1, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
    fill_request what = {dstDevice, us, 2, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    fill_request what = {dstDevice, ui, 4, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    fill_request what = {dstDevice, uc, 1, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    fill_request what = {dstDevice, us, 2, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    fill_request what = {dstDevice, ui, 4, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    fill_request what = {dstDevice, uc, 1, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
    fill_request what = {dstDevice, us, 2, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    fill_request what = {dstDevice, ui, 4, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}
