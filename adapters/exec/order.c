/* Memory that any stream may use at once.
 *
 * cuMemAlloc and cuMemFree name no stream: what cuMemAlloc returns may be used on every stream at once, and when
 * cuMemFree is called, work on every stream may still use the block. Such blocks live on the legacy stream, which waits
 * for all streams of its context but the non-blocking ones, and which those wait for:
 *
 *   free       A use is recorded on each non-blocking stream that is not idle; the block is freed on the legacy stream.
 *
 *   allocate   The stack makes the legacy stream wait for recorded uses, if need be. Then an event is recorded on the
 *              legacy stream, which orders it against the blocking streams in both directions, and each non-blocking
 *              stream waits for it: the allocation is published. Without non-blocking streams one publication serves
 *              until the next free.
 *
 *   captures   Frees are kept back until no stream is captured: a captured stream's earlier work cannot be asked for.
 *              When a capture ends, all streams wait for the latest publication.
 *
 * No call waits on the host, except where a stream refuses an event or a capture bars the legacy stream. Work is never
 * ordered less strictly than by the driver's own cuMemFree, which waits for the device. */
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "driver/driver.h"

/* ---- frees ---- */

typedef struct use_of_block {
    exec_device *device;
    const strata_block *block;
} use_of_block;

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return strata_cu.StreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A capture would not survive the question: its stream's earlier work was ordered when it began. */
static bool is_idle(CUstream stream)
{
    return is_captured(stream) || strata_cu.StreamQuery(stream) == CUDA_SUCCESS;
}

/* Where a stream refuses the event, the host waits. */
static void record_use(CUstream stream, void *data)
{
    const use_of_block *use = data;
    if (is_idle(stream))
        return;
    if (strata_runtime_record_block_use(use->device->runtime, use->block, stream, STRATA_ACCESS_READ_WRITE) ==
        STRATA_SUCCESS)
        return;
    exec_count(&exec_counts_now.late_waits);
    strata_cu.StreamSynchronize(stream);
}

void exec_order_free(exec_device *device, const strata_block *block)
{
    use_of_block use = {device, block};
    strata_error_suppress_begin();
    exec_streams_visit(device->context, record_use, &use);
    strata_error_suppress_end(false);
}

/* ---- publications ---- */

/* The thread's calls are made in the device's context and do not end captures of other threads. */
typedef struct exec_scope {
    CUcontext before;
    CUstreamCaptureMode mode;
} exec_scope;

static void enter(const exec_device *device, exec_scope *scope)
{
    scope->before = NULL;
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    strata_cu.CtxGetCurrent(&scope->before);
    if (scope->before != device->context)
        strata_cu.CtxSetCurrent(device->context);
    strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode);
}

static void leave(const exec_device *device, exec_scope *scope)
{
    strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode);
    if (scope->before != device->context)
        strata_cu.CtxSetCurrent(scope->before);
}

/* A capture of a blocking stream bars the legacy stream, and survives only this question. */
static bool legacy_is_barred(void)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return strata_cu.StreamIsCapturing(CU_STREAM_LEGACY, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A captured stream waits when its capture ends. */
static void wait_for_event(CUstream stream, void *data)
{
    if (is_captured(stream) || strata_cu.StreamWaitEvent(stream, (CUevent)data, 0) == CUDA_SUCCESS)
        return;
    exec_count(&exec_counts_now.late_waits);
    strata_cu.EventSynchronize((CUevent)data);
}

/* Of the legacy stream. False: a capture bars it, or the driver refuses. */
static bool record_event(exec_device *device)
{
    if (!device->event && strata_cu.EventCreate(&device->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return false;
    return !legacy_is_barred() && strata_cu.EventRecord(device->event, CU_STREAM_LEGACY) == CUDA_SUCCESS;
}

static bool announce(exec_device *device)
{
    if (!record_event(device))
        return false;
    exec_streams_visit(device->context, wait_for_event, device->event);
    return true;
}

/* Whether all streams come after what the legacy stream waits for. What it got with this allocation, a wait or the
 * memory itself (async), counts only for non-blocking streams: blocking ones wait for the legacy stream anyhow, and
 * what they did before a free came before the publication that followed the free. */
static bool is_published(const exec_device *device, uint64_t frees)
{
    return atomic_load(&device->published) >= frees && !exec_streams_any();
}

/* A thread that finds a publication begun by another one waits until it is made. */
bool exec_order_publish(exec_device *device)
{
    bool published = true;
    exec_scope scope;
    if (is_published(device, atomic_load(&device->frees)))
        return true;
    pthread_mutex_lock(&device->publishing);
    const uint64_t frees = atomic_load(&device->frees);
    if (!is_published(device, frees)) {
        enter(device, &scope);
        published = announce(device);
        leave(device, &scope);
        if (published)
            atomic_store(&device->published, frees);
    }
    pthread_mutex_unlock(&device->publishing);
    return published;
}

/* There may have been no publication yet, as there was no stream that needed it. */
void exec_order_new_stream(exec_device *device, CUstream stream)
{
    exec_scope scope;
    pthread_mutex_lock(&device->publishing);
    enter(device, &scope);
    (void)record_event(device); /* if a capture bars the legacy stream, nothing new was given out since the last one */
    if (device->event)
        wait_for_event(stream, device->event);
    leave(device, &scope);
    pthread_mutex_unlock(&device->publishing);
}

/* Where a capture bars the legacy stream, the host waits. */
static void order_or_wait(CUstream stream)
{
    CUevent event = NULL;
    const bool ordered = !legacy_is_barred() &&
                         strata_cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
                         strata_cu.EventRecord(event, stream) == CUDA_SUCCESS &&
                         strata_cu.StreamWaitEvent(CU_STREAM_LEGACY, event, 0) == CUDA_SUCCESS;
    if (event)
        strata_cu.EventDestroy(event);
    if (ordered)
        return;
    exec_count(&exec_counts_now.late_waits);
    strata_cu.StreamSynchronize(stream);
}

/* Counted as a free: the next allocation orders the other streams behind the legacy one. */
void exec_order_last_word(exec_device *device, CUstream stream)
{
    exec_scope scope;
    enter(device, &scope);
    if (!is_idle(stream)) {
        order_or_wait(stream);
        exec_order_count_free(device);
    }
    leave(device, &scope);
}
void exec_order_after_capture(exec_device *device)
{
    exec_scope scope;
    pthread_mutex_lock(&device->publishing);
    if (device->event) {
        enter(device, &scope);
        exec_streams_visit(device->context, wait_for_event, device->event);
        leave(device, &scope);
    }
    pthread_mutex_unlock(&device->publishing);
}

static void order_stream(CUstream stream, void *device)
{
    exec_order_last_word(device, stream);
}

void exec_order_before_capture(exec_device *device)
{
    exec_streams_visit(device->context, order_stream, device);
}
