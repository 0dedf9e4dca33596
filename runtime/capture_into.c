/* A function captured into a graph that is ready to be launched. */
#include <strata/graphed.h>

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/lock.h"

#include <pthread.h>

/* PTDS programs see macros of these names. */
#undef strata_capture_into
#undef strata_capture_begin
#undef strata_capture_end
#undef strata_capture_discard
#undef strata_graph_upload

enum { DISCARD_TRIES = 3 };

/* Held by a call in global mode while it runs the program's functions: they may do what they like, but for another such
 * call. */
static strata_lock global_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_CAPTURE_INTO);
static _Thread_local bool has_global_lock;

/* Discards the capture and keeps the thread's error. The driver may not end the capture at once; there may be none any
 * more. */
static void discard(strata_runtime *runtime, CUstream stream)
{
    strata_status status = STRATA_ERROR_DRIVER;
    strata_error_suppress_begin();
    for (int i = 0; i < DISCARD_TRIES && status == STRATA_ERROR_DRIVER; i++)
        status = strata_capture_discard(runtime, stream);
    strata_error_suppress_end(false);
}

/* A call of strata_capture_into. */
typedef struct call {
    strata_runtime *runtime;
    CUstream stream;
    strata_capture_mode mode;
    strata_capture_pool *pool;
    strata_graph_work prologue, body;
    void *data;
    bool captures; /* the capture has begun */
} call;

static strata_status capture(call *self, strata_graph **out)
{
    strata_status status = strata_capture_begin(self->runtime, self->stream, self->mode, self->pool);
    if (status != STRATA_SUCCESS)
        return status;
    self->captures = true;
    status = self->body(self->runtime, self->stream, self->data);
    if (status == STRATA_SUCCESS)
        status = strata_capture_end(self->runtime, self->stream, out);
    if (status != STRATA_SUCCESS)
        discard(self->runtime, self->stream);
    self->captures = false;
    return status;
}

static strata_status run(call *self, strata_graph **out)
{
    strata_status status = self->prologue ? self->prologue(self->runtime, self->stream, self->data) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = capture(self, out);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin(); /* a driver without uploads loads the graph at its first launch */
    status = strata_graph_upload(*out, self->stream);
    const bool loaded = status == STRATA_SUCCESS || status == STRATA_ERROR_UNSUPPORTED;
    strata_error_suppress_end(!loaded);
    if (loaded)
        return STRATA_SUCCESS;
    strata_error_suppress_begin(); /* the upload's error stays in force */
    strata_graph_destroy(*out);
    strata_error_suppress_end(false);
    *out = NULL;
    return status;
}

/* Also called if one of the functions ends the thread: then the capture goes first. */
static void leave_global(void *data)
{
    const call *self = data;
    if (self->captures)
        discard(self->runtime, self->stream);
    has_global_lock = false;
    strata_lock_release(&global_lock);
}

static strata_status run_in_global_mode(call *self, strata_graph **out)
{
    strata_status status;
    strata_lock_take(&global_lock);
    has_global_lock = true;
    pthread_cleanup_push(leave_global, self);
    status = run(self, out);
    pthread_cleanup_pop(1);
    return status;
}

strata_status strata_capture_into(strata_runtime *runtime, CUstream stream, strata_capture_mode mode,
                                  strata_capture_pool *pool, strata_graph_work prologue, strata_graph_work body,
                                  void *data, strata_graph **out)
{
    call self = {runtime, stream, mode, pool, prologue, body, data, false};
    if (out)
        *out = NULL;
    if (!runtime || !body || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_into: runtime, body or out is NULL");
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    if (mode != STRATA_CAPTURE_GLOBAL)
        return run(&self, out);
    if (has_global_lock)
        return strata_fail(STRATA_ERROR_BUSY, "strata_capture_into: called by a function that it runs, in global mode; "
                                              "use STRATA_CAPTURE_THREAD_LOCAL for the inner one");
    return run_in_global_mode(&self, out);
}
