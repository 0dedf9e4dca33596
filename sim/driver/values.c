/* Entry points: stream values, written and waited for. */
#include "driver/enter.h"

enum { MOST_IN_BATCH = 255 };

static CUresult value_call(const char *entry, CUstream stream, const sim_value_request *value, bool write)
{
    sim_queue *queue;
    CUresult result = sim_enter_handle_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_queue_for_work(stream, &queue);
    if (result == CUDA_SUCCESS)
        result = sim_value_check(queue, value, write);
    return sim_leave(result == CUDA_SUCCESS ? sim_value_submit(queue, value, write) : result);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    sim_value_request what = {addr, value, sizeof value, flags};
    return value_call(__func__, stream, &what, true);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    sim_value_request what = {addr, value, sizeof value, flags};
    return value_call(__func__, stream, &what, true);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    sim_value_request what = {addr, value, sizeof value, flags};
    return value_call(__func__, stream, &what, false);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    sim_value_request what = {addr, value, sizeof value, flags};
    return value_call(__func__, stream, &what, false);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                               unsigned int flags)
{
    sim_queue *queue;
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_queue_for_work(stream, &queue);
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if (flags != 0 || count > MOST_IN_BATCH || (count > 0 && !paramArray))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    return sim_leave(sim_values_submit(queue, count, paramArray));
}
