/* Which calls are refused during a capture.
 *
 * A call that waits on the host, openly or implicitly, is unsafe. A relaxed thread may always make it; others not while
 * they themselves capture in a mode other than relaxed, and a thread of mode global not while any thread captures in
 * mode global. Calls about a captured stream, or that wait for a context with one, are refused in every mode. A refused
 * call invalidates the captures that it was refused for. */
#include "order/order.h"

void sim_capture_invalidate(sim_capture *capture)
{
    capture->invalidated = true;
}

static bool forbids(const sim_capture *capture, const sim_thread *thread)
{
    if (thread->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == thread)
        return true;
    return thread->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_guard(void)
{
    if (!sim_order.captures)
        return CUDA_SUCCESS;
    const sim_thread *thread = sim_thread_self();
    CUresult result = thread ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (sim_capture *capture = sim_order.captures; thread && capture; capture = capture->next) {
        if (forbids(capture, thread)) {
            sim_capture_invalidate(capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult sim_capture_guard_queue(sim_queue *queue)
{
    if (!queue->capture)
        return CUDA_SUCCESS;
    sim_capture_invalidate(queue->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static bool takes_part(const sim_capture *capture, const sim_context *context, bool only_blocking)
{
    for (const sim_queue *queue = capture->queues; queue; queue = queue->next_captured)
        if (queue->context == context && (queue->blocking || !only_blocking))
            return true;
    return false;
}

CUresult sim_capture_guard_context(sim_context *context)
{
    CUresult result = CUDA_SUCCESS;
    for (sim_capture *capture = sim_order.captures; capture; capture = capture->next) {
        if (takes_part(capture, context, false)) {
            sim_capture_invalidate(capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

bool sim_capture_beside_legacy(sim_context *context)
{
    for (const sim_capture *capture = sim_order.captures; capture; capture = capture->next)
        if (takes_part(capture, context, true))
            return true;
    return false;
}

CUresult sim_capture_guard_legacy(sim_context *context)
{
    CUresult result = CUDA_SUCCESS;
    for (sim_capture *capture = sim_order.captures; capture; capture = capture->next) {
        if (takes_part(capture, context, true)) {
            sim_capture_invalidate(capture);
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return result;
}

static sim_capture *find(uint64_t id)
{
    sim_capture *capture = sim_order.captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture && !capture->invalidated ? capture : NULL;
}

sim_capture *sim_capture_of_event(CUevent event)
{
    return event->capture ? find(event->capture) : NULL;
}

CUresult sim_capture_guard_event(CUevent event)
{
    sim_capture *capture = sim_capture_of_event(event);
    if (capture) {
        sim_capture_invalidate(capture);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return event->capture ? CUDA_ERROR_INVALID_VALUE : sim_capture_guard();
}

void sim_capture_join(sim_capture *capture, sim_queue *queue)
{
    queue->capture = capture;
    queue->next_captured = capture->queues;
    capture->queues = queue;
    queue->captured.count = 0;
}

CUresult sim_capture_check(const sim_queue *queue)
{
    return queue->capture && queue->capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
