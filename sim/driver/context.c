/* Contexts, primary or made by cuCtxCreate, and each thread's current ones. Streams, events, modules and allocations
 * end with their context. */
#include "driver/enter.h"

static bool flags_known(unsigned flags)
{
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 && (flags & CU_CTX_SCHED_MASK) != 3 &&
           (flags & CU_CTX_SCHED_MASK) <= CU_CTX_SCHED_BLOCKING_SYNC;
}

/* Frees the handles of streams that ended with the primary context, once it has begun anew: a real driver crashes on
 * them from then on. */
static void free_ended_streams(const sim_context *context)
{
    for (CUstream stream = NULL; (stream = sim_slab_next(&sim_order.streams, stream));)
        if (!stream->queue && stream->ended == context)
            sim_slab_give(&sim_order.streams, stream);
}

static CUresult activate(sim_context *context)
{
    free_ended_streams(context);
    context->instance = ++sim_order.last_uid;
    context->legacy = sim_queue_open(context, SIM_QUEUE_LEGACY, CU_STREAM_DEFAULT, 0);
    context->active = context->legacy != NULL;
    return context->active ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_context_open(sim_device *device, bool primary, unsigned flags, sim_context **context)
{
    sim_context *made = sim_slab_take(&sim_order.contexts);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = device;
    made->primary = primary;
    made->flags = flags;
    made->uid = ++sim_order.last_uid;
    CUresult result = activate(made);
    if (result != CUDA_SUCCESS) {
        sim_slab_give(&sim_order.contexts, made);
        return result;
    }
    *context = made;
    return CUDA_SUCCESS;
}

/* The handle of a primary context stays, and calls still find what ended with it: streams until it begins anew, events
 * until it ends again. */
static void end_stream(sim_context *context, CUstream stream)
{
    stream->queue = NULL;
    stream->ended = context;
    if (!context->primary)
        sim_slab_give(&sim_order.streams, stream);
}

static void end_event(const sim_context *context, CUevent event)
{
    if (event->ended || !context->primary)
        sim_event_free(event);
    else
        sim_event_strip(event);
}

static void free_handles(sim_context *context)
{
    for (CUstream stream = NULL; (stream = sim_slab_next(&sim_order.streams, stream));)
        if (stream->queue && stream->queue->context == context)
            end_stream(context, stream);
    for (CUevent event = NULL; (event = sim_slab_next(&sim_order.events, event));)
        if (event->context == context)
            end_event(context, event);
    for (CUmodule module = NULL; (module = sim_slab_next(&sim_kernels.modules, module));)
        if (module->context == context)
            sim_module_free(module);
}

/* Ends all that belongs to the context, whose work is done or abandoned. */
static void strip(sim_context *context)
{
    free_handles(context);
    sim_peers_free(context);
    sim_leaks_report(context);
    sim_blocks_of_context_free(context);
    while (context->queues) {
        sim_threads_forget_queue(context->queues);
        context->queues->tail = NULL;
        sim_queue_free(context->queues);
    }
    context->legacy = NULL;
    context->active = false;
    sim_clock_drop(context->ended);
    sim_clock_drop(context->ended_blocking);
    context->ended = NULL;
    context->ended_blocking = NULL;
}

void sim_context_free(sim_context *context)
{
    strip(context);
    sim_slab_give(&sim_order.contexts, context);
}

static bool has_work(const sim_context *context)
{
    bool has = false;
    for (const sim_queue *queue = context->queues; queue; queue = queue->next)
        has = has || queue->tail;
    return has;
}

/* Waits for its work, and what other threads submit meanwhile, then ends it. A primary context's handle stays for its
 * next retain. */
CUresult sim_context_close(sim_context *context)
{
    const uint64_t instance = context->instance;
    CUresult result;
    do {
        result = sim_context_wait(context);
        if (result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_OUT_OF_MEMORY)
            return result;
        if (!sim_context_lasts(context, instance))
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    } while (has_work(context));
    strip(context);
    if (!context->primary)
        sim_slab_give(&sim_order.contexts, context);
    return result;
}

static CUresult begin_primary(sim_device *device)
{
    if (device->poison != CUDA_SUCCESS)
        return device->poison;
    if (!device->primary)
        return sim_context_open(device, true, device->primary_flags, &device->primary);
    device->primary->flags = device->primary_flags;
    return activate(device->primary);
}

/* Failed work of the context is no failure of its end. */
static CUresult end_context(sim_context *context)
{
    const sim_device *device = context->device;
    CUresult result = sim_context_close(context);
    return result == device->poison ? CUDA_SUCCESS : result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_device *device = sim_device_of(dev);
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!pctx)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!device->primary || !device->primary->active)
        result = begin_primary(device);
    if (result == CUDA_SUCCESS) {
        device->primary_references++;
        *pctx = device->primary;
    }
    return sim_leave(result);
}

static CUresult release(sim_device *device)
{
    if (device->primary_references == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    device->primary_references--;
    bool last = device->primary_references == 0 && device->primary->active;
    return last ? end_context(device->primary) : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_device *device = sim_device_of(dev);
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_DEVICE);
    return sim_leave(release(device));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_device *device = sim_device_of(dev);
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!flags_known(flags) || (flags & CU_CTX_MAP_HOST) != 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    device->primary_flags = flags;
    if (device->primary)
        device->primary->flags = flags;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const sim_device *device = sim_device_of(dev);
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!flags || !active)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = device->primary_flags;
    *active = device->primary && device->primary->active;
    return sim_leave(CUDA_SUCCESS);
}

/* Ends the primary context despite references, which stay. The next retain begins it anew. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_device *device = sim_device_of(dev);
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_DEVICE);
    if (device->primary && device->primary->active) {
        result = end_context(device->primary);
        if (result == CUDA_SUCCESS) {
            device->primary_flags = 0;
            device->primary->flags = 0;
        }
    }
    return sim_leave(result);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    return cuDevicePrimaryCtxReset_v2(dev);
}

static CUresult create(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    sim_device *device = sim_device_of(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!context || !flags_known(flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (device->poison != CUDA_SUCCESS)
        return device->poison;
    sim_context *made;
    CUresult result = sim_context_open(device, false, flags, &made);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_thread_push(made);
    if (result != CUDA_SUCCESS) {
        sim_context_free(made);
        return result;
    }
    *context = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(create(pctx, flags, dev));
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                        CUdevice dev)
{
    if (paramsArray || numParams != 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    if (ctxCreateParams && (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams))
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_context_valid(ctx) || ctx->primary)
        return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
    sim_thread *thread = sim_thread_self();
    if (thread && thread->depth > 0 && thread->stack[thread->depth - 1].uid == ctx->uid)
        thread->depth--;
    return sim_leave(end_context(ctx));
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!ctx)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    return sim_leave(sim_context_valid(ctx) ? sim_thread_push(ctx) : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_thread *thread = sim_thread_self();
    if (!thread || thread->depth == 0)
        return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
    thread->depth--;
    if (pctx)
        *pctx = thread->stack[thread->depth].context;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    return cuCtxPopCurrent_v2(pctx);
}

/* Replaces the top of the stack; NULL pops it. */
CUresult cuCtxSetCurrent(CUcontext ctx)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_thread *thread = sim_thread_self();
    if (ctx && !sim_context_valid(ctx))
        return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (thread && thread->depth > 0)
        thread->depth--;
    return sim_leave(ctx ? sim_thread_push(ctx) : CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pctx)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    const sim_thread *thread = sim_thread_self();
    *pctx = thread && thread->depth > 0 ? thread->stack[thread->depth - 1].context : NULL;
    return sim_leave(CUDA_SUCCESS);
}

/* Enters a call about a context; NULL: the current one. After a failure the lock is not held. */
static CUresult enter(const char *entry, CUcontext given, sim_context **context)
{
    if (!given)
        return sim_enter_context_as(entry, context);
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_context_valid(given))
        return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *context = given;
    result = sim_context_check(given);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : sim_leave(result);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    sim_context *context;
    CUresult result = enter(__func__, ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *device = context->device->ordinal;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = context->flags;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    sim_context *context;
    CUresult result = enter(__func__, ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!ctxId)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *ctxId = context->instance;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    unsigned long long id;
    sim_called_as(__func__);
    CUresult result = cuCtxGetId(ctx, &id);
    if (result != CUDA_SUCCESS)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = SIM_GREATEST_PRIORITY;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    sim_context *context;
    CUresult result = enter(__func__, ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_guard_context(context);
    if (result == CUDA_SUCCESS && !sim_fault_drops(STRATA_SIM_EDGE_CONTEXT_SYNCHRONIZE)) {
        result = sim_context_wait(context);
        sim_edge_counted(!sim_order.joined);
    }
    return sim_leave(result);
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}
