/* Copies and fills. Ends of a copy are device memory, pinned memory or plain host memory, found out by address where
 * the call does not say. What plain host memory holds is read when the copy is called for, and it is written before the
 * call returns; with pinned memory both happen when the work runs. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

enum side { HOST_SIDE, DEVICE_SIDE, ANY_SIDE };

/* What an end of a copy is. False if the call must not name it. */
static bool locate(uint64_t address, size_t bytes, enum side side, struct sim_place *place)
{
    place->address = address;
    place->pageable = false;
    if (sim_block_at(address)) {
        return sim_block_around(address, bytes) != NULL;
    }
    place->pageable = true;
    return side != DEVICE_SIDE && address != 0;
}

static CUresult submit_copy(struct sim_queue *queue, const struct sim_place *to, const struct sim_place *from,
                            size_t bytes, struct sim_op **op)
{
    void *staged = NULL;
    if (from->pageable) {
        staged = malloc(bytes);
        if (!staged) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(staged, (const void *)(uintptr_t)from->address, bytes);
    }
    struct sim_op *made = sim_op_create(queue->context, queue, SIM_OP_COPY, 0);
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

struct copy {
    uint64_t to;
    uint64_t from;
    size_t bytes;
    enum side to_side;
    enum side from_side;
};

static bool on_host(uint64_t address)
{
    const struct sim_block *block = sim_block_at(address);
    return !block || block->kind == SIM_BLOCK_PINNED;
}

/* Copies in the order of a stream. A call that is synchronous waits, unless both ends are the device's; so does a call
 * that writes plain host memory. */
static CUresult copy(const struct copy *copy, CUstream stream, bool synchronous)
{
    struct sim_queue *queue;
    struct sim_place to;
    struct sim_place from;
    CUresult result = sim_queue_of(stream, &queue);
    if (result != CUDA_SUCCESS || copy->bytes == 0) {
        return result;
    }
    if (!locate(copy->to, copy->bytes, copy->to_side, &to) ||
        !locate(copy->from, copy->bytes, copy->from_side, &from)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (synchronous && from.pageable) {
        result = sim_queue_wait(queue);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    struct sim_op *op;
    result = submit_copy(queue, &to, &from, copy->bytes, &op);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    bool host = on_host(copy->to) || on_host(copy->from);
    if (to.pageable || (synchronous && host)) {
        result = sim_op_wait(queue->context, op);
    }
    sim_op_drop(op);
    return result;
}

static CUresult copy_call(const struct copy *what, CUstream stream, bool synchronous)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return sim_leave(copy(what, stream, synchronous));
}

static struct copy host_to_device(CUdeviceptr to, const void *from, size_t bytes)
{
    return (struct copy){to, (uint64_t)(uintptr_t)from, bytes, DEVICE_SIDE, HOST_SIDE};
}

static struct copy device_to_host(void *to, CUdeviceptr from, size_t bytes)
{
    return (struct copy){(uint64_t)(uintptr_t)to, from, bytes, HOST_SIDE, DEVICE_SIDE};
}

static struct copy device_to_device(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (struct copy){to, from, bytes, DEVICE_SIDE, DEVICE_SIDE};
}

static struct copy generic(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (struct copy){to, from, bytes, ANY_SIDE, ANY_SIDE};
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    struct copy what = host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(&what, hStream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    struct copy what = device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(&what, hStream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    struct copy what = device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(&what, hStream, false);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    struct copy what = generic(dst, src, ByteCount);
    return copy_call(&what, hStream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    struct copy what = host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(&what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct copy what = device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(&what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct copy what = device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(&what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    struct copy what = generic(dst, src, ByteCount);
    return copy_call(&what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    struct copy what = host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(&what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct copy what = device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(&what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct copy what = device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(&what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    struct copy what = generic(dst, src, ByteCount);
    return copy_call(&what, CU_STREAM_PER_THREAD, true);
}

/* ---- fills ---- */

struct fill {
    uint64_t address;
    uint32_t value;
    size_t width;
    size_t count;
    size_t pitch;
    size_t rows;
};

/* The bytes from the first to the last, or 0 if they are more than any memory has. */
static uint64_t extent_of(const struct fill *fill)
{
    uint64_t row = fill->count > SIM_MOST_MEMORY ? 0 : (uint64_t)fill->width * fill->count;
    if (row == 0 || fill->rows == 1) {
        return row;
    }
    if (fill->pitch < row || fill->rows > SIM_MOST_MEMORY || fill->pitch > SIM_MOST_MEMORY / fill->rows) {
        return 0;
    }
    return (uint64_t)fill->pitch * (fill->rows - 1) + row;
}

static CUresult fill(const struct fill *fill, CUstream stream)
{
    struct sim_queue *queue;
    CUresult result = sim_queue_of(stream, &queue);
    if (result != CUDA_SUCCESS || fill->count == 0 || fill->rows == 0) {
        return result;
    }
    uint64_t extent = extent_of(fill);
    bool aligned = fill->address % fill->width == 0 && (fill->rows == 1 || fill->pitch % fill->width == 0);
    if (extent == 0 || !aligned || !sim_block_around(fill->address, extent)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_op *op = sim_op_create(queue->context, queue, SIM_OP_FILL, 0);
    if (!op) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->work.fill.address = fill->address;
    op->work.fill.value = fill->value;
    op->work.fill.width = fill->width;
    op->work.fill.count = fill->count;
    op->work.fill.pitch = fill->pitch;
    op->work.fill.rows = fill->rows;
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

static CUresult fill_call(const struct fill *what, CUstream stream)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return sim_leave(fill(what, stream));
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    struct fill what = {dstDevice, uc, 1, N, 0, 1};
    return fill_call(&what, hStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    struct fill what = {dstDevice, us, 2, N, 0, 1};
    return fill_call(&what, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    struct fill what = {dstDevice, ui, 4, N, 0, 1};
    return fill_call(&what, hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
                           CUstream hStream)
{
    struct fill what = {dstDevice, uc, 1, Width, dstPitch, Height};
    return fill_call(&what, hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
                            CUstream hStream)
{
    struct fill what = {dstDevice, us, 2, Width, dstPitch, Height};
    return fill_call(&what, hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
                            CUstream hStream)
{
    struct fill what = {dstDevice, ui, 4, Width, dstPitch, Height};
    return fill_call(&what, hStream);
}

/* The host does not wait for a fill of device memory; one that ends in pinned memory it does wait for. */
static CUresult fill_now(const struct fill *what, CUstream stream)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = fill(what, stream);
    if (result == CUDA_SUCCESS && what->count > 0 && on_host(what->address)) {
        struct sim_queue *queue;
        result = sim_queue_of(stream, &queue);
        result = result == CUDA_SUCCESS ? sim_op_wait(queue->context, queue->tail) : result;
    }
    return sim_leave(result);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    struct fill what = {dstDevice, uc, 1, N, 0, 1};
    return fill_now(&what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    struct fill what = {dstDevice, us, 2, N, 0, 1};
    return fill_now(&what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    struct fill what = {dstDevice, ui, 4, N, 0, 1};
    return fill_now(&what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    struct fill what = {dstDevice, uc, 1, N, 0, 1};
    return fill_now(&what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    struct fill what = {dstDevice, us, 2, N, 0, 1};
    return fill_now(&what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    struct fill what = {dstDevice, ui, 4, N, 0, 1};
    return fill_now(&what, CU_STREAM_PER_THREAD);
}
