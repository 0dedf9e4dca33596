/* Entry points: copies of rows and planes. */
#include "driver/enter.h"

static CUresult copy_call(const char *entry, const sim_rows_request *copy, CUstream stream, bool synchronous)
{
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    if (synchronous && sim_context_has_ended())
        return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return sim_leave(sim_rows_submit(copy, stream, synchronous));
}

static CUresult copy_2d(const char *entry, const CUDA_MEMCPY2D *asked, CUstream stream, bool synchronous)
{
    if (!asked)
        return CUDA_ERROR_INVALID_VALUE;
    sim_rows_request copy = {
        .to = {.type = asked->dstMemoryType,
               .host = (uint64_t)(uintptr_t)asked->dstHost,
               .device = asked->dstDevice,
               .x = asked->dstXInBytes,
               .y = asked->dstY,
               .pitch = asked->dstPitch},
        .from = {.type = asked->srcMemoryType,
                 .host = (uint64_t)(uintptr_t)asked->srcHost,
                 .device = asked->srcDevice,
                 .x = asked->srcXInBytes,
                 .y = asked->srcY,
                 .pitch = asked->srcPitch},
        .width = asked->WidthInBytes,
        .rows = asked->Height,
        .planes = 1,
    };
    return copy_call(entry, &copy, stream, synchronous);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(__func__, pCopy, CU_STREAM_LEGACY, true);
}

/* As cuMemcpy2D: any pitch is allowed there, too. */
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(__func__, pCopy, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(__func__, pCopy, hStream, false);
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(__func__, pCopy, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(__func__, pCopy, CU_STREAM_PER_THREAD, true);
}

static CUresult copy_3d(const char *entry, const CUDA_MEMCPY3D *asked, CUstream stream, bool synchronous)
{
    if (!asked)
        return CUDA_ERROR_INVALID_VALUE;
    sim_rows_request copy = sim_rows_of_3d(asked);
    return copy_call(entry, &copy, stream, synchronous);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(__func__, pCopy, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(__func__, pCopy, hStream, false);
}

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(__func__, pCopy, CU_STREAM_PER_THREAD, true);
}
