/* Questions about calls from exit handlers, from a forked child, and after a kernel's illegal access. */
#include "ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Used by the handlers and the child; written once, before they run. */
static struct {
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUdeviceptr memory;
    CUdeviceptr pooled;
    CUmemoryPool pool;
    CUmodule module;
    CUfunction fill;
} left;

static void leave_things(void)
{
    left.context = start();
    left.stream = new_stream(CU_STREAM_NON_BLOCKING);
    left.event = new_event();
    left.memory = new_memory(64 * KIB);
    left.pool = new_pool(0);
    cu.MemAllocFromPoolAsync(&left.pooled, 64 * KIB, left.pool, left.stream);
    cu.ModuleLoadData(&left.module, pattern_module);
    cu.ModuleGetFunction(&left.fill, left.module, "strata_pattern_fill");
    warm_up(left.stream);
    cu.EventRecord(left.event, left.stream);
    cu.StreamSynchronize(left.stream);
}

static void ask_queries(const char *where)
{
    int number = 0;
    unsigned flags = 0;
    unsigned long long id = 0;
    CUcontext context = NULL;
    CUstreamCaptureStatus status;
    cuuint64_t bytes = 0;
    const char *text = NULL;
    size_t size = 0;
    CUdeviceptr base = 0;
    ask(cu.DriverGetVersion(&number), "%s.driver_get_version", where);
    ask(cu.GetErrorName(CUDA_ERROR_UNKNOWN, &text), "%s.get_error_name", where);
    ask(cu.Init(0), "%s.init", where);
    ask(cu.DeviceGetCount(&number), "%s.device_get_count", where);
    ask(cu.DeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), "%s.device_get_attribute", where);
    ask(cu.DevicePrimaryCtxGetState(0, &flags, &number), "%s.primary_ctx_get_state", where);
    ask(cu.CtxGetCurrent(&context), "%s.ctx_get_current", where);
    ask(cu.CtxSetCurrent(left.context), "%s.ctx_set_current", where);
    ask(cu.CtxPushCurrent(left.context), "%s.ctx_push_current", where);
    ask(cu.CtxPopCurrent(&context), "%s.ctx_pop_current", where);
    ask(cu.MemGetInfo(&size, &size), "%s.mem_get_info", where);
    ask(cu.StreamIsCapturing(NULL, &status), "%s.stream_is_capturing.null", where);
    ask(cu.StreamIsCapturing(left.stream, &status), "%s.stream_is_capturing", where);
    ask(cu.StreamGetId(left.stream, &id), "%s.stream_get_id", where);
    ask(cu.StreamQuery(NULL), "%s.stream_query.null", where);
    ask(cu.StreamQuery(left.stream), "%s.stream_query", where);
    ask(cu.EventQuery(left.event), "%s.event_query", where);
    ask(cu.PointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, left.memory), "%s.pointer_get_attribute",
        where);
    ask(cu.MemGetAddressRange(&base, &size, left.memory), "%s.mem_get_address_range", where);
    ask(cu.MemPoolGetAttribute(left.pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes), "%s.mem_pool_get_attribute",
        where);
}

/* Work and waits on objects made before. */
static void ask_work(const char *where)
{
    CUdeviceptr address = 0;
    ask(cu.StreamSynchronize(left.stream), "%s.stream_synchronize", where);
    ask(cu.EventSynchronize(left.event), "%s.event_synchronize", where);
    ask(cu.MemAllocFromPoolAsync(&address, 4 * KIB, left.pool, left.stream), "%s.mem_alloc_from_pool_async", where);
    ask(cu.MemAllocAsync(&address, 4 * KIB, left.stream), "%s.mem_alloc_async", where);
    ask(cu.MemsetD8Async(left.memory, 1, 16, left.stream), "%s.memset_d8_async", where);
    ask(pattern_fill(left.fill, left.memory, 16, 1, left.stream), "%s.launch_kernel", where);
    ask(cu.EventRecord(left.event, left.stream), "%s.event_record", where);
    ask(cu.StreamWaitEvent(left.stream, left.event, 0), "%s.stream_wait_event", where);
    ask(cu.MemPoolTrimTo(left.pool, 0), "%s.mem_pool_trim_to", where);
}

/* Calls that need only the driver, its current context and, for one copy, an address. */
static void ask_beginnings(const char *where)
{
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUmodule module = NULL;
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = pool_properties();
    CUcontext context = NULL;
    void *host = NULL;
    char byte = 0;
    ask(cu.CtxSynchronize(), "%s.ctx_synchronize", where);
    ask(cu.MemAlloc(&address, 4 * KIB), "%s.mem_alloc", where);
    ask(cu.MemHostAlloc(&host, 4 * KIB, 0), "%s.mem_host_alloc", where);
    ask(cu.MemcpyDtoH(&byte, left.memory, 1), "%s.memcpy_dtoh", where);
    ask(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "%s.stream_create", where);
    ask(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING), "%s.event_create", where);
    ask(cu.ModuleLoadData(&module, pattern_module), "%s.module_load_data", where);
    ask(cu.MemPoolCreate(&pool, &properties), "%s.mem_pool_create", where);
    ask(cu.DevicePrimaryCtxRetain(&context, 0), "%s.primary_ctx_retain", where);
}

static void ask_releases(const char *where)
{
    ask(cu.MemFreeAsync(left.pooled, left.stream), "%s.mem_free_async", where);
    ask(cu.MemFree(left.memory), "%s.mem_free", where);
    ask(cu.ModuleUnload(left.module), "%s.module_unload", where);
    ask(cu.EventDestroy(left.event), "%s.event_destroy", where);
    ask(cu.StreamDestroy(left.stream), "%s.stream_destroy", where);
    ask(cu.MemPoolDestroy(left.pool), "%s.mem_pool_destroy", where);
    ask(cu.DevicePrimaryCtxRelease(0), "%s.primary_ctx_release", where);
}

static void handler_registered_before(void)
{
    ask_queries("exit.handler_registered_before_open");
    ask_work("exit.handler_registered_before_open");
    ask_beginnings("exit.handler_registered_before_open");
    ask_releases("exit.handler_registered_before_open");
}

static void handler_registered_after(void)
{
    ask_queries("exit.handler_registered_after_init");
    ask_work("exit.handler_registered_after_init");
    ask_beginnings("exit.handler_registered_after_init");
}

void ask_exit_before_open(void)
{
    atexit(handler_registered_before);
}

void ask_exit(void)
{
    leave_things();
    atexit(handler_registered_after);
    ask_yes(left.context != NULL, "exit.context_made");
}

/* The child makes only queries and calls without a handle: the driver does not check where a handle comes from, and
 * waiting for the parent's stream would kill the child. An alarm ends a call that hangs. */
void ask_fork(void)
{
    leave_things();
    pid_t child = fork();
    if (child == 0) {
        alarm(8);
        ask_queries("fork.child");
        ask_beginnings("fork.child");
        ask(cu.MemFree(left.memory), "fork.child.mem_free");
        ask(cu.DevicePrimaryCtxRelease(0), "fork.child.primary_ctx_release");
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ask_text(WIFSIGNALED(status) ? "signal" : "exit", "fork.child.end");
    ask_number(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), "fork.child.end.code");
    ask(cu.StreamSynchronize(left.stream), "fork.parent.stream_synchronize");
    ask(cu.MemFreeAsync(left.pooled, left.stream), "fork.parent.mem_free_async");
    ask(cu.MemFree(left.memory), "fork.parent.mem_free");
    ask(cu.CtxSynchronize(), "fork.parent.ctx_synchronize");
}

void ask_poison(void)
{
    leave_things();
    CUcontext other = NULL;
    CUcontext again = NULL;
    ask(cu.CtxCreate(&other, NULL, 0, 0), "poison.other_context");
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    cu.CtxSetCurrent(left.context);
    ask(pattern_fill(left.fill, 0x10000, 16, 1, left.stream), "poison.launch");
    ask(cu.StreamSynchronize(left.stream), "poison.first_synchronize");
    ask_queries("poison");
    ask_work("poison");
    ask_beginnings("poison");
    ask(cu.CtxSetCurrent(other), "poison.other_context.set_current");
    ask(cu.StreamQuery(stream), "poison.other_context.stream_query");
    ask(cu.CtxSynchronize(), "poison.other_context.ctx_synchronize");
    ask(cu.CtxDestroy(other), "poison.other_context.destroy");
    ask(cu.CtxSetCurrent(left.context), "poison.set_current");
    ask_releases("poison");
    ask(cu.DevicePrimaryCtxReset(0), "poison.primary_ctx_reset");
    ask(cu.DevicePrimaryCtxRetain(&again, 0), "poison.primary_ctx_retain_after_reset");
    ask(cu.CtxSetCurrent(again), "poison.set_current_after_reset");
    CUdeviceptr address = 0;
    ask(cu.MemAlloc(&address, 4 * KIB), "poison.mem_alloc_after_reset");
    ask(cu.CtxCreate(&other, NULL, 0, 0), "poison.ctx_create_after_reset");
}
