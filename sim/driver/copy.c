/* Entry points: copies and fills. */
#include "driver/enter.h"

static CUresult copy_call(const char *entry, const sim_copy_request *what, CUstream stream, bool synchronous)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    if (synchronous && sim_context_has_ended())
        return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return sim_leave(sim_copy_submit(what, stream, synchronous));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    sim_copy_request what = sim_copy_host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    sim_copy_request what = sim_copy_device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    sim_copy_request what = sim_copy_device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    sim_copy_request what = sim_copy_any(dst, src, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    sim_copy_request what = sim_copy_host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    sim_copy_request what = sim_copy_device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    sim_copy_request what = sim_copy_device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

/* Of copies between devices the contexts are ignored: addresses determine them. */
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                      size_t ByteCount)
{
    (void)dstContext;
    (void)srcContext;
    sim_copy_request what = sim_copy_between_peers(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                           size_t ByteCount)
{
    (void)dstContext;
    (void)srcContext;
    sim_copy_request what = sim_copy_between_peers(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                           size_t ByteCount, CUstream hStream)
{
    (void)dstContext;
    (void)srcContext;
    sim_copy_request what = sim_copy_between_peers(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, hStream, false);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    sim_copy_request what = sim_copy_any(dst, src, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    sim_copy_request what = sim_copy_host_to_device(dstDevice, srcHost, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    sim_copy_request what = sim_copy_device_to_host(dstHost, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    sim_copy_request what = sim_copy_device_to_device(dstDevice, srcDevice, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    sim_copy_request what = sim_copy_any(dst, src, ByteCount);
    return copy_call(__func__, &what, CU_STREAM_PER_THREAD, true);
}

static CUresult fill_call(const char *entry, const sim_fill_request *what, CUstream stream)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_fill_submit(what, stream));
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    sim_fill_request what = {dstDevice, uc, 1, N, 0, 1};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    sim_fill_request what = {dstDevice, us, 2, N, 0, 1};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    sim_fill_request what = {dstDevice, ui, 4, N, 0, 1};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
                           CUstream hStream)
{
    sim_fill_request what = {dstDevice, uc, 1, Width, dstPitch, Height};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
                            CUstream hStream)
{
    sim_fill_request what = {dstDevice, us, 2, Width, dstPitch, Height};
    return fill_call(__func__, &what, hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
                            CUstream hStream)
{
    sim_fill_request what = {dstDevice, ui, 4, Width, dstPitch, Height};
    return fill_call(__func__, &what, hStream);
}

/* The host waits only for fills of pinned memory. */
static CUresult fill_now(const char *entry, const sim_fill_request *what, CUstream stream)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_context_has_ended() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : sim_fill_submit(what, stream);
    if (result == CUDA_SUCCESS && what->count > 0 && what->rows > 0 && sim_copy_on_host(what->address)) {
        sim_queue *queue;
        result = sim_queue_of(stream, &queue);
        result = result == CUDA_SUCCESS ? sim_op_wait(queue->context, queue->tail) : result;
    }
    return sim_leave(result);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    sim_fill_request what = {dstDevice, uc, 1, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    sim_fill_request what = {dstDevice, us, 2, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    sim_fill_request what = {dstDevice, ui, 4, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    sim_fill_request what = {dstDevice, uc, 1, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
    sim_fill_request what = {dstDevice, us, 2, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    sim_fill_request what = {dstDevice, ui, 4, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_LEGACY);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    sim_fill_request what = {dstDevice, uc, 1, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    sim_fill_request what = {dstDevice, us, 2, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    sim_fill_request what = {dstDevice, ui, 4, N, 0, 1};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    sim_fill_request what = {dstDevice, uc, 1, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
    sim_fill_request what = {dstDevice, us, 2, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    sim_fill_request what = {dstDevice, ui, 4, Width, dstPitch, Height};
    return fill_now(__func__, &what, CU_STREAM_PER_THREAD);
}
