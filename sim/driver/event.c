/* Entry points: events. */
#include "driver/enter.h"

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_event_create(context, phEvent, Flags));
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    if (!hEvent)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_event_check(hEvent);
    if (result == CUDA_SUCCESS)
        result = sim_context_check(hEvent->context);
    if (result == CUDA_SUCCESS)
        sim_event_free(hEvent);
    return sim_leave(result);
}

CUresult cuEventDestroy(CUevent hEvent)
{
    return cuEventDestroy_v2(hEvent);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != CU_EVENT_RECORD_DEFAULT && flags != CU_EVENT_RECORD_EXTERNAL)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    return sim_leave(sim_event_record(hEvent, hStream, flags));
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    sim_called_as(__func__);
    return cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventQuery(CUevent hEvent)
{
    if (!hEvent)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_enter_query();
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_event_check(hEvent);
    if (result == CUDA_SUCCESS)
        result = sim_capture_guard_event(hEvent);
    return sim_leave(result == CUDA_SUCCESS ? sim_event_query(hEvent) : result);
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    if (!hEvent)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_event_check(hEvent);
    if (result == CUDA_SUCCESS)
        result = sim_capture_guard_event(hEvent);
    return sim_leave(result == CUDA_SUCCESS ? sim_event_wait(hEvent) : result);
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_event_elapsed(pMilliseconds, hStart, hEnd));
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return cuEventElapsedTime(pMilliseconds, hStart, hEnd);
}
