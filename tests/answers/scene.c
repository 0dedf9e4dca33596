/* The objects that questions need: a context, streams, events, memory, a pool. */
#include "ask.h"

#include <time.h>

CUcontext start(void)
{
    CUcontext context = NULL;
    cu.Init(0);
    cu.DevicePrimaryCtxRetain(&context, 0);
    cu.CtxSetCurrent(context);
    return context;
}

static void CUDA_CB do_nothing(void *data)
{
    (void)data;
}

void warm_up(CUstream stream)
{
    CUdeviceptr memory = new_memory(4 * KIB);
    cu.MemsetD8Async(memory, 1, 4 * KIB, stream);
    cu.MemsetD32Async(memory, 1, KIB, stream);
    cu.LaunchHostFunc(stream, do_nothing, NULL);
    cu.StreamSynchronize(stream);
    cu.MemFree(memory);
}

CUstream new_stream(unsigned flags)
{
    CUstream stream = NULL;
    cu.StreamCreate(&stream, flags);
    return stream;
}

CUevent new_event(void)
{
    CUevent event = NULL;
    cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING);
    return event;
}

CUdeviceptr new_memory(size_t bytes)
{
    CUdeviceptr address = 0;
    cu.MemAlloc(&address, bytes);
    return address;
}

CUmemPoolProps pool_properties(void)
{
    return (CUmemPoolProps){
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
}

CUmemoryPool new_pool(size_t max_bytes)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = pool_properties();
    properties.maxSize = max_bytes;
    cu.MemPoolCreate(&pool, &properties);
    return pool;
}

unsigned long long pool_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t number = 0;
    cu.MemPoolGetAttribute(pool, attribute, &number);
    return number;
}

static void sleep_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

CUresult await_event(CUevent event)
{
    double until = now_ms() + PATIENCE_MS;
    CUresult result;
    while ((result = cu.EventQuery(event)) == CUDA_ERROR_NOT_READY && now_ms() < until)
        sleep_a_little();
    return result;
}

CUresult await_stream(CUstream stream)
{
    double until = now_ms() + PATIENCE_MS;
    CUresult result;
    while ((result = cu.StreamQuery(stream)) == CUDA_ERROR_NOT_READY && now_ms() < until)
        sleep_a_little();
    return result;
}
