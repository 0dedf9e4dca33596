/* Scopes: what a driver call needs, set by enter and restored by leave. */
#ifndef STRATA_CORE_STREAMS_CALL_SCOPE_H
#define STRATA_CORE_STREAMS_CALL_SCOPE_H

#include "core/base/error.h"
#include "driver/driver.h"

#include <stdatomic.h>

typedef struct strata_device strata_device;

/* CONTEXT: the device's context is current. Default streams and calls that create something need it; calls on a stream
 * or event from cuStreamCreate or cuEventCreate do not (tests/answers/h200.txt, "without_context" and "other_context").
 * RELAXED: the thread's capture mode is relaxed, for calls that would invalidate another capture. LEGACY: no blocking
 * stream of the context is being captured: such a capture survives no call on the legacy stream in any mode
 * ("capture_legacy"). */
enum { STRATA_CALL_SCOPE_CONTEXT = 1, STRATA_CALL_SCOPE_RELAXED = 2, STRATA_CALL_SCOPE_LEGACY = 4 };

typedef struct strata_call_scope {
    CUcontext restore;
    CUstreamCaptureMode mode;
    bool switched;
    bool relaxed;
    bool gated;
} strata_call_scope;

/* What knows when captures of the process begin may keep them from beginning between LEGACY's question and its scope's
 * end: otherwise one that begins there is spoiled. `pass` and `leave` are called in pairs, also one pair in another, on
 * one thread. */
typedef struct strata_legacy_gate {
    void (*pass)(void);
    void (*leave)(void);
} strata_legacy_gate;
extern const strata_legacy_gate *strata_legacy_gate_now; /* or NULL; set before other threads are there */

/* For a call that waits: what it waits for may itself need a capture to begin. */
static inline void strata_call_scope_leave_gate(strata_call_scope *scope)
{
    if (__builtin_expect(!scope->gated, 1))
        return;
    scope->gated = false;
    strata_legacy_gate_now->leave();
}

/* What a call on the stream needs, besides RELAXED. With LEGACY, entering can fail with STREAM_CAPTURE. */
static inline unsigned strata_call_scope_for(CUstream stream)
{
    if (__builtin_expect((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD, 1))
        return 0;
    return stream == CU_STREAM_PER_THREAD ? STRATA_CALL_SCOPE_CONTEXT
                                          : STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_LEGACY;
}

strata_status strata_call_scope_enter_slow(strata_call_scope *scope, strata_device *device, unsigned needs);

/* Tries again to restore the caller's context and mode; only this call can. */
__attribute__((cold)) void strata_call_scope_leave_again(strata_call_scope *scope);

/* Copies the flags: to store one and then load both at once would stall. */
static inline void strata_call_scope_leave(strata_call_scope *scope)
{
    bool relaxed = scope->relaxed, switched = scope->switched;
    strata_call_scope_leave_gate(scope);
    if (relaxed)
        relaxed = strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode) != CUDA_SUCCESS;
    if (__builtin_expect(switched, 0))
        switched = strata_cu.CtxSetCurrent(scope->restore) != CUDA_SUCCESS;
    if (__builtin_expect(relaxed || switched, 0)) {
        scope->relaxed = relaxed;
        scope->switched = switched;
        strata_call_scope_leave_again(scope);
    }
}

static inline strata_status strata_call_scope_enter(strata_call_scope *scope, strata_device *device, unsigned needs)
{
    scope->switched = scope->relaxed = scope->gated = false;
    if (needs == 0)
        return STRATA_SUCCESS;
    if (__builtin_expect(needs != STRATA_CALL_SCOPE_RELAXED, 0))
        return strata_call_scope_enter_slow(scope, device, needs);
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (__builtin_expect(strata_cu.ThreadExchangeStreamCaptureMode(&scope->mode) != CUDA_SUCCESS, 0))
        return strata_call_scope_enter_slow(scope, device, needs);
    scope->relaxed = scope->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return STRATA_SUCCESS;
}

/* Whether the scope can be entered: enters and leaves it. */
static inline strata_status strata_check_call_scope(strata_device *device, unsigned needs)
{
    if (__builtin_expect(needs == 0, 1))
        return STRATA_SUCCESS;
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, device, needs);
    if (status == STRATA_SUCCESS)
        strata_call_scope_leave(&scope);
    return status;
}

/* How many captures of Strata's are under way in the process. Any thread. A program may have forked a known stream into
 * one: until its end the handle is good for the graph's work alone, and another call on it spoils the capture. */
extern _Atomic uint32_t strata_captures_under_way;

/* Asks the driver whether a stream is being captured. True too if the driver does not say, and the stream may exist:
 * waiting for the capture's end is always right. */
bool strata_asks_captured(CUstream stream);

/* Whether a known stream may not be used now, because it was forked into a capture. */
static inline bool strata_stream_is_forked(CUstream stream)
{
    return __builtin_expect(atomic_load_explicit(&strata_captures_under_way, memory_order_relaxed) != 0, 0) &&
           strata_asks_captured(stream);
}

/* Blocks until all work submitted to the stream is complete. Errors: DRIVER, STREAM_CAPTURE. */
strata_status strata_stream_synchronize(strata_device *device, CUstream stream);

/* The likely cause of a failed call on a stream, for the end of its message; or "". */
static inline const char *strata_stream_hint(CUresult result)
{
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        return " (is it being captured? Unregister a stream before its capture)";
    return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED
               ? " (was it destroyed? Unregister a stream before it is destroyed)"
               : "";
}

#endif
