/* The hooks of streams and captures. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "core/streams/stream_map.h"
#include "driver/driver.h"

static CUcontext current_context(void)
{
    CUcontext context = NULL;
    if (exec_open_driver())
        strata_cu.CtxGetCurrent(&context);
    return context;
}

/* ---- streams ---- */

/* Destroys a new stream whose work could not be ordered. */
static CUresult undo(CUstream stream)
{
    (void)EXEC_CALL(cuStreamDestroy_v2, stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool notice_and_order(CUstream stream, int ordinal, CUcontext own)
{
    const bool noticed = exec_stream_notice(stream, ordinal, own);
    exec_device *device = noticed ? exec_device_at((size_t)ordinal) : NULL;
    return noticed && (!device || exec_order_new_stream(device, stream));
}

/* Notices a new stream, and orders it, again after a reset that was not seen. The device may have no stack yet. */
static CUresult notice_new(int ordinal, CUstream stream, CUcontext own)
{
    exec_look_up_green();
    exec_device_meet_reset(ordinal);
    if (notice_and_order(stream, ordinal, own) ||
        (exec_device_found_reset(ordinal) && notice_and_order(stream, ordinal, own)))
        return CUDA_SUCCESS;
    exec_stream_forget(stream);
    return undo(stream);
}

/* Notices a new stream that the legacy stream does not wait for: a non-blocking one, or one of a context that is not
 * the primary one, whose streams may use the stack's memory, too. */
static CUresult created(CUresult result, const CUstream *stream, unsigned flags)
{
    CUdevice ordinal;
    if (result != CUDA_SUCCESS)
        return result;
    strata_stream_was_made(*stream);
    const exec_here here = exec_device_here();
    if (here.primary)
        return flags & CU_STREAM_NON_BLOCKING ? notice_new(here.device->ordinal, *stream, here.device->context)
                                              : result;
    if (!strata_driver_is_open())
        return result;
    const bool known = here.context && strata_cu.CtxGetDevice(&ordinal) == CUDA_SUCCESS && ordinal >= 0;
    return !known ? undo(*stream) : ordinal < EXEC_DEVICES ? notice_new(ordinal, *stream, here.context) : result;
}

/* A green context is a part of the primary one's device, and uses its memory. The stream ends with it. */
EXEC_EXPORT CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority)
{
    const CUresult result = EXEC_CALL(cuGreenCtxStreamCreate, stream, green, flags, priority);
    exec_beside beside;
    if (result == CUDA_SUCCESS)
        strata_stream_was_made(*stream);
    if (result == CUDA_SUCCESS && exec_green_find(green, -1, 0, &beside))
        return notice_new(beside.ordinal, *stream, (CUcontext)(void *)green);
    const CUcontext context = result == CUDA_SUCCESS ? exec_context_of_green(green) : NULL;
    exec_device *device = context ? exec_device_of(context) : NULL;
    return device ? notice_new(device->ordinal, *stream, (CUcontext)(void *)green) : result;
}

EXEC_EXPORT CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags)
{
    return created(EXEC_CALL(cuStreamCreate, stream, flags), stream, flags);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    return created(EXEC_CALL(cuStreamCreateWithPriority, stream, flags, priority), stream, flags);
}

static bool forget_capture(CUstream stream);
static CUresult after_capture(CUresult result, bool ended);

/* As soon as the stream is destroyed, another one may have the handle. True: its capture ends with it. */
static bool forget_stream(CUstream stream)
{
    exec_device *device;
    for (size_t i = 0; (device = exec_device_next(&i));) /* frees look at the stream until its last work is ordered */
        if (exec_stream_uses(stream, device->ordinal))
            exec_order_last_word(device, stream);
    exec_stream_forget(stream);
    return forget_capture(stream);
}

#define STREAM_DESTROY(name)                                  \
    EXEC_EXPORT CUresult CUDAAPI name(CUstream stream)        \
    {                                                         \
        const bool ended = forget_stream(stream);             \
        return after_capture(EXEC_CALL(name, stream), ended); \
    }

STREAM_DESTROY(cuStreamDestroy)
STREAM_DESTROY(cuStreamDestroy_v2)

/* ---- captures ---- */

static void for_each_device(void (*work)(exec_device *device))
{
    exec_device *device;
    for (size_t i = 0; (device = exec_device_next(&i));)
        work(device);
}

/* The context of a stream; for a default stream or one of a green context, the current one. */
static CUcontext context_of(CUstream stream)
{
    CUcontext context = NULL;
    if (exec_open_driver() && !exec_is_default(stream)) {
        exec_look_up_green();
        if (exec_context_of_stream(stream, &context))
            return context;
    }
    return current_context();
}

/* False: no capture of the stream is known. */
static bool forget_capture(CUstream handle)
{
    return exec_captures_under_way() && exec_capture_forget(handle, exec_is_default(handle) ? current_context() : NULL);
}

/* Takes and returns the result of a call that may have ended a capture, which was forgotten then. Before that call has
 * returned, the capture may bar the legacy stream, on which frees wait. */
static CUresult after_capture(CUresult result, bool ended)
{
    if (ended)
        for_each_device(exec_order_after_capture);
    if (ended && !exec_captures_under_way())
        exec_free_all_waiting();
    return result;
}

static void meet_reset(exec_device *device)
{
    exec_device_meet_reset(device->ordinal);
}

/* Notes the capture before the real call, so that no thread finds the stream captured and no capture under way. */
static bool expect_capture(CUstream stream)
{
    if (!exec_open_driver()) /* there is no stack */
        return true;
    for_each_device(meet_reset);
    for_each_device(exec_order_before_capture);
    return exec_capture_note(stream, context_of(stream));
}

static CUresult begun(CUresult result, CUstream stream)
{
    return after_capture(result, result != CUDA_SUCCESS && forget_capture(stream));
}

/* Also a call that fails may have ended the capture, as WRONG_THREAD and UNJOINED do:
 * capture_begin.*.end_on_other_thread and capture_fork.unjoined in tests/answers/h200.txt. */
static CUresult ended(CUresult result, CUstream stream)
{
    const bool goes_on = result != CUDA_SUCCESS && exec_is_captured(stream);
    return after_capture(result, !goes_on && forget_capture(stream));
}

/* The calling program's stream 0 is the legacy one, or its thread's. */
#define LEGACY(stream) (stream)
#define THREAD(stream) exec_own_default(stream)

/* `meant`: LEGACY or THREAD. */
#define BEGIN_CAPTURE(name, meant, parameters, ...)           \
    EXEC_EXPORT CUresult CUDAAPI name parameters              \
    {                                                         \
        exec_beginning beginning;                             \
        if (exec_is_forked()) /* the driver refuses it */     \
            return EXEC_CALL(name, __VA_ARGS__);              \
        if (!expect_capture(meant(stream)))                   \
            return CUDA_ERROR_OUT_OF_MEMORY;                  \
        exec_beginning_enter(&beginning);                     \
        const CUresult result = EXEC_CALL(name, __VA_ARGS__); \
        exec_beginning_leave(&beginning);                     \
        return begun(result, meant(stream));                  \
    }

#define END_CAPTURE(name, meant)                                       \
    EXEC_EXPORT CUresult CUDAAPI name(CUstream stream, CUgraph *graph) \
    {                                                                  \
        return ended(EXEC_CALL(name, stream, graph), meant(stream));   \
    }

BEGIN_CAPTURE(cuStreamBeginCapture, LEGACY, (CUstream stream), stream)
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, THREAD, (CUstream stream), stream)

#define WITH_MODE (CUstream stream, CUstreamCaptureMode mode)
BEGIN_CAPTURE(cuStreamBeginCapture_v2, LEGACY, WITH_MODE, stream, mode)
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, THREAD, WITH_MODE, stream, mode)

#define TO_GRAPH                                                                                           \
    (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count, \
     CUstreamCaptureMode mode)
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, LEGACY, TO_GRAPH, stream, graph, nodes, edges, count, mode)
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, THREAD, TO_GRAPH, stream, graph, nodes, edges, count, mode)

END_CAPTURE(cuStreamEndCapture, LEGACY)
END_CAPTURE(cuStreamEndCapture_ptsz, THREAD)
