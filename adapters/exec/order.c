/* Memory that any stream may use at once.
 *
 * cuMemAlloc and cuMemFree name no stream: what cuMemAlloc returns may be used on every stream at once, and when
 * cuMemFree is called, work on every stream may still use the block. Such blocks live on the legacy stream, which waits
 * for all streams of its context but the non-blocking ones, and which those wait for.
 *
 *   barrier    The legacy stream waits for each non-blocking stream that is not idle, and records an event. That orders
 *              it against the blocking streams in both directions. Each non-blocking stream waits for the event. So
 *              whatever any stream does later comes after whatever any stream did before. The legacy stream of another
 *              context that may use the memory (beside.c) takes part like a non-blocking stream.
 *
 *   free       While there is no non-blocking stream and no other context, the block is freed at once. Else it waits,
 * with others, for one barrier, and is freed behind it (frees.c): a barrier costs two to three calls for each stream,
 * and libraries make a hundred streams.
 *
 *   allocate   A barrier follows if something was freed since the last one without waiting for it: on the legacy
 *              stream, or by cuMemFreeAsync. It follows always where the stack's memory itself is ordered by streams:
 *              memory of async, and what a guard has filled.
 *
 *   captures   Before one begins, the legacy stream waits for all streams; when it ends, they wait for the latest
 *              barrier. Until then frees wait: a captured stream's earlier work cannot be asked for.
 *
 * No call waits on the host, except where a capture bars the legacy stream, where a green context is made or ends
 * beside a capture, or the driver refuses an event. Work is never ordered less strictly than by the driver's own
 * cuMemFree, which waits for the device. */
#include "adapters/exec/exec.h"

#include "driver/driver.h"

enum { TRIES = 3 /* of a call that has no substitute */ };

static CUresult make_current(CUcontext context)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (int i = 0; i < TRIES && result != CUDA_SUCCESS; i++)
        result = strata_cu.CtxSetCurrent(context);
    return result;
}

/* What the thread had before enter: inside, its calls are made in the device's context and end no other captures. */
typedef struct exec_scope {
    CUcontext before;
    CUstreamCaptureMode mode;
} exec_scope;

/* False: the driver refuses, or the context has ended, and with it the noticed streams; nothing has changed. */
static bool enter(const exec_device *device, exec_scope *scope)
{
    if (exec_streams_any() && !exec_device_has_its_context(device))
        return false;
    scope->before = NULL;
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (strata_cu.CtxGetCurrent(&scope->before) != CUDA_SUCCESS ||
        (scope->before != device->context && make_current(device->context) != CUDA_SUCCESS))
        return false;
    if (strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS)
        return true;
    make_current(scope->before);
    return false;
}

static void leave(const exec_device *device, exec_scope *scope)
{
    const CUstreamCaptureMode before = scope->mode;
    for (int i = 0; i < TRIES && strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode) != CUDA_SUCCESS; i++)
        scope->mode = before;
    if (scope->before != device->context)
        make_current(scope->before);
}

/* ---- barriers ---- */

/* Also true of a captured stream: its earlier work was ordered when the capture began, which would not survive the
 * question. */
static bool is_idle(CUstream stream)
{
    return exec_is_captured(stream) || strata_cu.StreamQuery(stream) == CUDA_SUCCESS;
}

/* Whether a capture of a blocking stream bars the legacy stream. No other question would leave that capture valid. */
static bool legacy_is_barred(void)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return strata_cu.StreamIsCapturing(CU_STREAM_LEGACY, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool has_event(CUevent *event)
{
    return *event || strata_cu.EventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
}

/* Makes the legacy stream wait for an event that was recorded on another one. */
static bool legacy_waits_for(CUevent event)
{
    return strata_cu.StreamWaitEvent(CU_STREAM_LEGACY, event, 0) == CUDA_SUCCESS;
}

static bool order_by_device_event(exec_device *device, CUstream stream)
{
    return has_event(&device->last_work) && strata_cu.EventRecord(device->last_work, stream) == CUDA_SUCCESS &&
           legacy_waits_for(device->last_work);
}

/* Makes the legacy stream wait for a stream of another context, which refuses an event of the device's. The driver
 * keeps a destroyed event until it is done. `green`: NULL, or a green context whose whole work takes the stream's
 * place; the event is then one of its device's primary context. */
static bool order_by_event_of(const exec_device *device, CUcontext context, CUstream stream, CUgreenCtx green)
{
    CUevent event = NULL;
    if (strata_cu.CtxSetCurrent(context) != CUDA_SUCCESS)
        return false;
    const bool recorded =
        strata_cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        (green ? exec_green_record(green, event) : strata_cu.EventRecord(event, stream) == CUDA_SUCCESS);
    const bool ordered = make_current(device->context) == CUDA_SUCCESS && recorded && legacy_waits_for(event);
    if (event)
        strata_cu.EventDestroy(event);
    return ordered;
}

/* The primary context of a green context's device. */
static CUcontext primary_below(const exec_device *device, const exec_beside *green)
{
    CUcontext primary = NULL;
    if (green->ordinal == device->ordinal)
        return device->context;
    if (strata_cu.DevicePrimaryCtxRetain(&primary, green->ordinal) == CUDA_SUCCESS)
        strata_cu.DevicePrimaryCtxRelease(green->ordinal);
    return primary;
}

static bool order_green(const exec_device *device, const exec_beside *green)
{
    return order_by_event_of(device, primary_below(device, green), NULL, green->green);
}

static bool order_by_its_event(const exec_device *device, CUstream stream)
{
    exec_beside beside;
    CUcontext context;
    const CUgreenCtx green = exec_green_of_stream(stream);
    if (green)
        return exec_green_find(green, -1, 0, &beside) && order_green(device, &beside);
    return exec_context_of_stream(stream, &context) && order_by_event_of(device, context, stream, NULL);
}

/* A visit of the streams and contexts that do not wait for the legacy stream. */
typedef struct barrier {
    exec_device *device;
    bool now;   /* they are about to end, or to be used: no later barrier orders them */
    bool whole; /* neither a capture nor an error of the driver has kept one out */
} barrier;

/* Whether a result means a stream or a context whose end was not seen. */
static bool is_gone(CUresult result)
{
    return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT ||
           result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Notes the result of a wait on the host, in place of one by the streams. */
static void note_wait(barrier *order, CUresult result)
{
    exec_count(&exec_counts_now.late_waits);
    order->whole &= result == CUDA_SUCCESS || is_gone(result);
}

/* Makes the legacy stream wait for a stream's work, or the host, while a capture bars the legacy stream. */
static void order_before_legacy(CUstream stream, void *data)
{
    barrier *order = data;
    if (!is_idle(stream) && (legacy_is_barred() || (!order_by_device_event(order->device, stream) &&
                                                    !order_by_its_event(order->device, stream))))
        note_wait(order, strata_cu.StreamSynchronize(stream));
}

static void wait_for_default_streams(barrier *order, CUcontext context)
{
    CUresult result = strata_cu.CtxSetCurrent(context);
    if (result == CUDA_SUCCESS)
        result = strata_cu.StreamSynchronize(CU_STREAM_LEGACY);
    make_current(order->device->context);
    note_wait(order, result);
}

/* As below, for a green context. Whether one of its streams is captured cannot be asked for, so that no wait is made
 * during captures, unless nothing orders it later. */
static void order_green_before_legacy(const exec_beside *green, barrier *order)
{
    if (!legacy_is_barred() && order_green(order->device, green))
        return;
    if (exec_captures_under_way() && !order->now)
        order->whole = false;
    else
        wait_for_default_streams(order, green->handle);
}

/* As order_before_legacy, for the default streams of a context beside the primary one. If a capture bars them, the
 * barrier is not whole: frees wait for the capture's end, and for a barrier behind it. */
static void order_context_before_legacy(const exec_beside *context, void *data)
{
    barrier *order = data;
    if (context->green) {
        order_green_before_legacy(context, order);
        return;
    }
    const CUresult entered = strata_cu.CtxSetCurrent(context->handle);
    const bool barred = entered == CUDA_SUCCESS && legacy_is_barred();
    make_current(order->device->context);
    if (entered != CUDA_SUCCESS || barred)
        order->whole &= is_gone(entered);
    else if (legacy_is_barred() || !order_by_event_of(order->device, context->handle, CU_STREAM_LEGACY, NULL))
        wait_for_default_streams(order, context->handle);
}

/* Makes a stream wait for the latest event. A captured stream does when its capture ends. */
static void wait_for_event(CUstream stream, void *data)
{
    barrier *order = data;
    const CUevent event = order->device->event;
    if (exec_is_captured(stream))
        return;
    const CUresult result = strata_cu.StreamWaitEvent(stream, event, 0);
    if (result != CUDA_SUCCESS && !is_gone(result))
        note_wait(order, strata_cu.EventSynchronize(event));
}

static void green_waits_for_event(const exec_beside *green, barrier *order)
{
    if (exec_green_wait(green->green, order->device->event))
        return;
    if (exec_captures_under_way() && !order->now)
        order->whole = false;
    else if (strata_cu.EventQuery(order->device->event) != CUDA_SUCCESS)
        note_wait(order, strata_cu.EventSynchronize(order->device->event));
}

static void context_waits_for_event(const exec_beside *context, void *data)
{
    barrier *order = data;
    if (context->green) {
        green_waits_for_event(context, order);
        return;
    }
    const CUresult entered = strata_cu.CtxSetCurrent(context->handle);
    if (entered != CUDA_SUCCESS || legacy_is_barred())
        order->whole &= is_gone(entered);
    else
        wait_for_event(CU_STREAM_LEGACY, order);
    make_current(order->device->context);
}

/* First half of a barrier: makes the legacy stream wait for all that does not wait for it; with `own`, for what there
 * is of that in one context. False: not for all. */
static bool order_all_before_legacy(exec_device *device, CUcontext own)
{
    barrier order = {.device = device, .now = own != NULL, .whole = true};
    exec_streams_visit(device->ordinal, own, order_before_legacy, &order);
    exec_contexts_visit(device->ordinal, own, order_context_before_legacy, &order);
    return order.whole;
}

/* Second half: makes all of that wait for the latest event. */
static bool all_wait_for_event(exec_device *device, CUcontext own)
{
    barrier order = {.device = device, .now = own != NULL, .whole = true};
    exec_streams_visit(device->ordinal, own, wait_for_event, &order);
    exec_contexts_visit(device->ordinal, own, context_waits_for_event, &order);
    return order.whole;
}

/* Records the device's event on the legacy stream. False: a capture bars that stream, or the driver refuses. */
static bool record_event(exec_device *device)
{
    return !legacy_is_barred() && has_event(&device->event) &&
           strata_cu.EventRecord(device->event, CU_STREAM_LEGACY) == CUDA_SUCCESS;
}

/* Under `publishing`. A capture that has begun since the caller looked may take in any stream meanwhile. */
static bool make_barrier(exec_device *device)
{
    exec_scope scope;
    const uint64_t frees = atomic_load(&device->frees);
    if (exec_captures_under_way() || !enter(device, &scope))
        return false;
    const bool made = !legacy_is_barred() && order_all_before_legacy(device, NULL) && record_event(device) &&
                      all_wait_for_event(device, NULL);
    if (made)
        atomic_store(&device->published, frees);
    leave(device, &scope);
    return made;
}

bool exec_order_barrier(exec_device *device)
{
    pthread_mutex_lock(&device->publishing);
    const bool made = make_barrier(device);
    pthread_mutex_unlock(&device->publishing);
    return made;
}

/* Whether no barrier is needed. Without non-blocking streams none is for what an allocation makes the legacy stream
 * wait for: the other streams wait for that one anyhow, and what they did before a free came before the barrier that
 * followed the free. */
static bool is_published(const exec_device *device)
{
    return atomic_load(&device->published) >= atomic_load(&device->frees) &&
           !(device->memory_is_ordered && exec_streams_any());
}

/* A thread waits while another one makes a barrier, and then mostly needs none. */
bool exec_order_publish(exec_device *device)
{
    if (is_published(device))
        return true;
    pthread_mutex_lock(&device->publishing);
    const bool published = is_published(device) || make_barrier(device);
    pthread_mutex_unlock(&device->publishing);
    return published;
}

/* ---- streams and captures ---- */

/* Records the event anew: there may have been no barrier yet, as no stream needed one. True also while a capture bars
 * the legacy stream: since the last event nothing new was given out then. */
static bool has_recent_event(exec_device *device)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    for (int i = 0; i < TRIES; i++)
        if (record_event(device))
            return true;
    return strata_cu.StreamIsCapturing(CU_STREAM_LEGACY, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool exec_order_new_stream(exec_device *device, CUstream stream)
{
    exec_scope scope;
    barrier order = {.device = device};
    pthread_mutex_lock(&device->publishing);
    if (enter(device, &scope)) {
        order.whole = has_recent_event(device);
        if (order.whole && device->event)
            wait_for_event(stream, &order);
        leave(device, &scope);
    }
    pthread_mutex_unlock(&device->publishing);
    return order.whole;
}

bool exec_order_new_context(exec_device *device, CUcontext context)
{
    exec_scope scope;
    bool ordered = false;
    pthread_mutex_lock(&device->publishing);
    if (enter(device, &scope)) {
        ordered = has_recent_event(device) && (!device->event || all_wait_for_event(device, context));
        leave(device, &scope);
    }
    pthread_mutex_unlock(&device->publishing);
    return ordered;
}

/* Makes the legacy stream wait for what does not wait for it, of one context or (NULL) of all. Counted as a free: the
 * next allocation orders the other streams behind the legacy one. */
static void order_before_legacy_now(exec_device *device, CUcontext own)
{
    exec_scope scope;
    bool ordered = false;
    pthread_mutex_lock(&device->publishing);
    for (int i = 0; i < TRIES && !ordered; i++) {
        if (!enter(device, &scope))
            continue;
        ordered = order_all_before_legacy(device, own) || exec_captures_under_way();
        leave(device, &scope);
    }
    exec_order_count_free(device);
    pthread_mutex_unlock(&device->publishing);
}

/* Counted as a free, as above. */
void exec_order_last_word(exec_device *device, CUstream stream)
{
    exec_scope scope;
    barrier order = {.device = device};
    pthread_mutex_lock(&device->publishing);
    for (int i = 0; i < TRIES && !order.whole; i++) {
        if (!enter(device, &scope))
            continue;
        order.whole = true;
        if (!is_idle(stream)) {
            order_before_legacy(stream, &order);
            exec_order_count_free(device);
        }
        leave(device, &scope);
    }
    pthread_mutex_unlock(&device->publishing);
}

void exec_order_last_words(exec_device *device, CUcontext own)
{
    order_before_legacy_now(device, own);
}

void exec_order_after_capture(exec_device *device)
{
    exec_scope scope;
    pthread_mutex_lock(&device->publishing);
    bool ordered = !device->event;
    for (int i = 0; i < TRIES && !ordered; i++) {
        if (!enter(device, &scope))
            continue;
        ordered = all_wait_for_event(device, NULL) || exec_captures_under_way();
        leave(device, &scope);
    }
    pthread_mutex_unlock(&device->publishing);
}

/* Orders the streams' work before the legacy stream's, but not yet before the other streams'. */
void exec_order_before_capture(exec_device *device)
{
    order_before_legacy_now(device, NULL);
}
