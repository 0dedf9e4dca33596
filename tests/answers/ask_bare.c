/* Questions about calls without a current context, with and without explicit handles, and about handles of one context
 * used while another is current. */
#include "ask.h"

struct things {
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUevent timed;
    CUmemoryPool pool;
    CUdeviceptr memory;
    CUdeviceptr pooled;
    CUmodule module;
    CUfunction fill;
    void *pinned;
};

static struct things make_things(void)
{
    struct things things = {0};
    cu.CtxGetCurrent(&things.context);
    things.stream = new_stream(CU_STREAM_NON_BLOCKING);
    things.event = new_event();
    cu.EventCreate(&things.timed, 0);
    things.pool = new_pool(0);
    things.memory = new_memory(64 * KIB);
    cu.MemAllocFromPoolAsync(&things.pooled, 64 * KIB, things.pool, things.stream);
    cu.ModuleLoadData(&things.module, pattern_module);
    cu.ModuleGetFunction(&things.fill, things.module, "strata_pattern_fill");
    cu.MemHostAlloc(&things.pinned, 64 * KIB, 0);
    warm_up(things.stream);
    pattern_fill(things.fill, things.memory, 4 * KIB, 1, things.stream);
    cu.StreamSynchronize(things.stream);
    return things;
}

static void CUDA_CB do_nothing(void *data)
{
    (void)data;
}

static void ask_stream_calls(const char *where, const char *kind, CUstream stream, const struct things *things)
{
    CUresult result;
    unsigned long long id = 0;
    unsigned flags = 0;
    int priority = 0;
    CUcontext context = NULL;
    CUdevice device = 0;
    CUstreamCaptureStatus status;
    cuuint64_t capture = 0;
    ask(cu.StreamQuery(stream), "%s.%s.stream_query", where, kind);
    ask(cu.StreamSynchronize(stream), "%s.%s.stream_synchronize", where, kind);
    ask(cu.StreamIsCapturing(stream, &status), "%s.%s.stream_is_capturing", where, kind);
    ask(cu.StreamGetCaptureInfo(stream, &status, &capture, NULL, NULL, NULL, NULL), "%s.%s.stream_get_capture_info",
        where, kind);
    ask(cu.StreamGetId(stream, &id), "%s.%s.stream_get_id", where, kind);
    result = cu.StreamGetCtx(stream, &context);
    ask_fact(result, context == things->context, "%s.%s.stream_get_ctx.is_its_own", where, kind);
    result = cu.StreamGetDevice(stream, &device);
    ask_value(result, device, "%s.%s.stream_get_device", where, kind);
    ask(cu.StreamGetFlags(stream, &flags), "%s.%s.stream_get_flags", where, kind);
    ask(cu.StreamGetPriority(stream, &priority), "%s.%s.stream_get_priority", where, kind);
    ask(cu.EventRecord(things->event, stream), "%s.%s.event_record", where, kind);
    ask(cu.StreamWaitEvent(stream, things->event, 0), "%s.%s.stream_wait_event", where, kind);
    ask(cu.LaunchHostFunc(stream, do_nothing, NULL), "%s.%s.launch_host_func", where, kind);
}

static void ask_memory_calls(const char *where, const char *kind, CUstream stream, const struct things *things)
{
    CUdeviceptr address = 0;
    ask(cu.MemAllocFromPoolAsync(&address, 4 * KIB, things->pool, stream), "%s.%s.mem_alloc_from_pool_async", where,
        kind);
    ask(cu.MemFreeAsync(address, stream), "%s.%s.mem_free_async.of_pool", where, kind);
    address = 0;
    ask(cu.MemAllocAsync(&address, 4 * KIB, stream), "%s.%s.mem_alloc_async", where, kind);
    ask(cu.MemFreeAsync(address, stream), "%s.%s.mem_free_async", where, kind);
    ask(cu.MemsetD8Async(things->memory, 1, KIB, stream), "%s.%s.memset_d8_async", where, kind);
    ask(cu.MemsetD32Async(things->pooled, 1, KIB, stream), "%s.%s.memset_d32_async.pooled", where, kind);
    ask(cu.MemcpyHtoDAsync(things->memory, things->pinned, KIB, stream), "%s.%s.memcpy_htod_async", where, kind);
    ask(cu.MemcpyDtoHAsync(things->pinned, things->memory, KIB, stream), "%s.%s.memcpy_dtoh_async", where, kind);
    ask(cu.MemcpyDtoDAsync(things->memory, things->pooled, KIB, stream), "%s.%s.memcpy_dtod_async", where, kind);
    ask(cu.MemcpyAsync(things->memory, things->pooled, KIB, stream), "%s.%s.memcpy_async", where, kind);
    ask(pattern_fill(things->fill, things->memory, KIB, 1, stream), "%s.%s.launch_kernel", where, kind);
    ask(cu.StreamSynchronize(stream), "%s.%s.stream_synchronize_after_work", where, kind);
}

static void ask_makers(const char *where)
{
    CUstream stream = NULL;
    CUevent event = NULL;
    CUdeviceptr address = 0;
    void *host = NULL;
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = pool_properties();
    CUmodule module = NULL;
    CUdevice device = 0;
    unsigned flags = 0;
    int least = 0;
    int greatest = 0;
    unsigned long long id = 0;
    size_t bytes = 0;
    size_t total = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    ask(cu.StreamCreate(&stream, 0), "%s.stream_create", where);
    ask(cu.StreamCreateWithPriority(&stream, 1, 0), "%s.stream_create_with_priority", where);
    ask(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING), "%s.event_create", where);
    ask(cu.MemAlloc(&address, 4 * KIB), "%s.mem_alloc", where);
    ask(cu.MemFree(0), "%s.mem_free.null", where);
    ask(cu.MemHostAlloc(&host, 4 * KIB, 0), "%s.mem_host_alloc", where);
    ask(cu.MemHostAlloc(&host, 4 * KIB, CU_MEMHOSTALLOC_PORTABLE), "%s.mem_host_alloc.portable", where);
    ask(cu.MemGetInfo(&bytes, &total), "%s.mem_get_info", where);
    ask(cu.MemPoolCreate(&pool, &properties), "%s.mem_pool_create", where);
    ask(cu.MemPoolTrimTo(pool, 0), "%s.mem_pool_trim_to", where);
    ask(cu.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes), "%s.mem_pool_get_attribute", where);
    ask(cu.MemPoolDestroy(pool), "%s.mem_pool_destroy", where);
    pool = NULL;
    ask(cu.DeviceGetDefaultMemPool(&pool, 0), "%s.device_get_default_mem_pool", where);
    ask(cu.DeviceGetMemPool(&pool, 0), "%s.device_get_mem_pool", where);
    ask(cu.DeviceSetMemPool(0, pool), "%s.device_set_mem_pool", where);
    ask(cu.ModuleLoadData(&module, pattern_module), "%s.module_load_data", where);
    ask(cu.CtxGetDevice(&device), "%s.ctx_get_device", where);
    ask(cu.CtxGetFlags(&flags), "%s.ctx_get_flags", where);
    ask(cu.CtxGetId(NULL, &id), "%s.ctx_get_id.null", where);
    ask(cu.CtxGetStreamPriorityRange(&least, &greatest), "%s.ctx_get_stream_priority_range", where);
    ask(cu.CtxSynchronize(), "%s.ctx_synchronize", where);
    ask(cu.ThreadExchangeStreamCaptureMode(&mode), "%s.thread_exchange_stream_capture_mode", where);
}

static void ask_users(const char *where, struct things *things)
{
    char byte = 1;
    unsigned number = 0;
    float elapsed = 0;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CUfunction function = NULL;
    ask(cu.EventQuery(things->event), "%s.event_query", where);
    ask(cu.EventSynchronize(things->event), "%s.event_synchronize", where);
    ask(cu.EventElapsedTime(&elapsed, things->timed, things->timed), "%s.event_elapsed_time.unrecorded", where);
    ask(cu.MemcpyHtoD(things->memory, &byte, 1), "%s.memcpy_htod", where);
    ask(cu.MemcpyDtoH(&byte, things->memory, 1), "%s.memcpy_dtoh", where);
    ask(cu.MemcpyDtoD(things->memory, things->memory + KIB, 1), "%s.memcpy_dtod", where);
    ask(cu.Memcpy(things->memory, things->memory + KIB, 1), "%s.memcpy", where);
    ask(cu.MemsetD8(things->memory, 1, 1), "%s.memset_d8", where);
    ask(cu.MemGetAddressRange(&address, &bytes, things->memory), "%s.mem_get_address_range", where);
    ask(cu.PointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, things->memory), "%s.pointer_get_attribute",
        where);
    ask(cu.MemHostGetDevicePointer(&address, things->pinned, 0), "%s.mem_host_get_device_pointer", where);
    ask(cu.MemHostGetFlags(&number, things->pinned), "%s.mem_host_get_flags", where);
    ask(cu.ModuleGetFunction(&function, things->module, "strata_pattern_fill"), "%s.module_get_function", where);
    cu.CtxSynchronize();
    ask(cu.MemFreeHost(things->pinned), "%s.mem_free_host", where);
    ask(cu.MemFree(things->memory), "%s.mem_free", where);
    ask(cu.MemFree(things->pooled), "%s.mem_free.pooled", where);
    ask(cu.ModuleUnload(things->module), "%s.module_unload", where);
    ask(cu.EventDestroy(things->event), "%s.event_destroy", where);
    ask(cu.MemPoolDestroy(things->pool), "%s.mem_pool_destroy.used", where);
    ask(cu.StreamDestroy(things->stream), "%s.stream_destroy", where);
}

void ask_without_context(void)
{
    start();
    struct things things = make_things();
    cu.CtxSetCurrent(NULL);
    ask_stream_calls("without_context", "own_stream", things.stream, &things);
    ask_memory_calls("without_context", "own_stream", things.stream, &things);
    ask_stream_calls("without_context", "null_stream", NULL, &things);
    ask_memory_calls("without_context", "null_stream", NULL, &things);
    ask_stream_calls("without_context", "legacy", CU_STREAM_LEGACY, &things);
    ask_memory_calls("without_context", "legacy", CU_STREAM_LEGACY, &things);
    ask_stream_calls("without_context", "per_thread", CU_STREAM_PER_THREAD, &things);
    ask_memory_calls("without_context", "per_thread", CU_STREAM_PER_THREAD, &things);
    ask_makers("without_context");
    ask_users("without_context", &things);
}

void ask_other_context(void)
{
    start();
    CUcontext other = NULL;
    struct things things = make_things();
    ask(cu.CtxCreate(&other, NULL, 0, 0), "other_context.create");
    ask_stream_calls("other_context", "own_stream", things.stream, &things);
    ask_memory_calls("other_context", "own_stream", things.stream, &things);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    CUdeviceptr memory = 0;
    warm_up(stream);
    ask(cu.EventRecord(things.event, stream), "other_context.record_foreign_event");
    ask(cu.EventRecord(event, things.stream), "other_context.record_on_foreign_stream");
    ask(cu.EventRecord(things.event, NULL), "other_context.record_foreign_event.null_stream");
    ask(cu.EventRecord(things.event, things.stream), "other_context.record_both_foreign");
    ask(cu.StreamWaitEvent(stream, things.event, 0), "other_context.wait_foreign_event");
    ask(cu.StreamWaitEvent(things.stream, event, 0), "other_context.foreign_stream_waits");
    ask(cu.MemAllocFromPoolAsync(&memory, 4 * KIB, things.pool, stream), "other_context.alloc_from_pool");
    ask(cu.MemFreeAsync(memory, things.stream), "other_context.free_on_foreign_stream");
    ask(cu.MemsetD8Async(things.memory, 1, KIB, stream), "other_context.memset_foreign_memory");
    ask(cu.MemcpyDtoDAsync(things.memory, things.pooled, KIB, stream), "other_context.copy_foreign_memory");
    ask(pattern_fill(things.fill, things.memory, KIB, 1, stream), "other_context.launch_foreign_function");
    ask(cu.StreamSynchronize(stream), "other_context.stream_synchronize");
    ask_users("other_context", &things);
    cu.CtxDestroy(other);
}
