/* Raising, suppressing and logging errors. */
#include "core/base/error.h"

#include "core/base/cancel.h"
#include "core/base/escape.h"
#include "core/base/fault_hints.h"
#include "core/base/host_memory.h"
#include "core/base/report.h"
#include "core/base/thread.h"
#include "driver/driver.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* Changed together; guarded by callback_lock, copied before the call. */
static pthread_mutex_t callback_lock = PTHREAD_MUTEX_INITIALIZER;
static strata_log_callback log_callback;
static void *log_data;

static void before_fork(void)
{
    pthread_mutex_lock(&callback_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&callback_lock);
}

/* A forked child raises errors too, so the lock must be free in it. */
static pthread_once_t watching_forks = PTHREAD_ONCE_INIT;

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

void strata_set_log_callback(strata_log_callback callback, void *data)
{
    pthread_once(&watching_forks, watch_forks);
    pthread_mutex_lock(&callback_lock);
    log_callback = callback;
    log_data = data;
    pthread_mutex_unlock(&callback_lock);
}

/* For a thread whose state could not be allocated; constant. */
static const strata_error no_thread_state = {
    .status = STRATA_ERROR_OUT_OF_HOST_MEMORY,
    .message = "out of host memory for this thread's state",
};

const strata_error *strata_last_error(void)
{
    const strata_thread *thread = strata_thread_self();
    return thread ? &thread->error : &no_thread_state;
}

static _Thread_local strata_error spare; /* used without host memory */

strata_error *strata_error_begin(strata_status status)
{
    strata_thread *thread = strata_thread_self();
    strata_error *error = !thread ? &spare : thread->suppress_depth ? &thread->suppressed : &thread->error;
    *error = (strata_error){.status = status};
    return error;
}

/* A finding, queued until suppression ends. */
typedef struct strata_notice {
    struct strata_notice *next;
    strata_error error;
} strata_notice;

static strata_notice *take_notice(strata_thread *thread)
{
    strata_notice *notice = thread->notices;
    if (notice)
        thread->notices = notice->next;
    return notice;
}

static void drop_notices(strata_thread *thread)
{
    for (strata_notice *notice; (notice = take_notice(thread));)
        strata_host_free(notice);
}

static strata_thread_exit_hook exit_hook = {.run = drop_notices};
static pthread_once_t exit_hook_once = PTHREAD_ONCE_INIT;

static void add_exit_hook(void)
{
    strata_thread_add_exit_hook(&exit_hook);
}

static strata_error *add_notice(strata_thread *thread)
{
    enum { MOST = 64 };
    pthread_once(&exit_hook_once, add_exit_hook);
    unsigned count = 0;
    for (const strata_notice *at = thread->notices; at; at = at->next)
        count++;
    strata_notice *notice = count < MOST ? strata_host_zalloc(sizeof *notice) : NULL;
    if (!notice)
        return &spare;
    if (thread->notices)
        thread->last_notice->next = notice;
    else
        thread->notices = notice;
    thread->last_notice = notice;
    return &notice->error;
}

strata_error *strata_error_begin_finding(strata_status status)
{
    strata_thread *thread = strata_thread_self();
    if (!thread || !thread->suppress_depth)
        return strata_error_begin(status);
    strata_error *error = add_notice(thread);
    *error = (strata_error){.status = status};
    return error;
}

static _Thread_local bool in_log_callback;

bool strata_error_is_being_reported(void)
{
    return in_log_callback;
}

static strata_log_callback copy_log_callback(void **data)
{
    pthread_once(&watching_forks, watch_forks);
    pthread_mutex_lock(&callback_lock);
    strata_log_callback callback = log_callback;
    *data = log_data;
    pthread_mutex_unlock(&callback_lock);
    return callback;
}

bool strata_error_has_log_callback(void)
{
    void *data;
    return copy_log_callback(&data) != NULL;
}

/* Calls the log callback, and writes an error to STRATA_REPORT. */
static void log_error(const strata_error *error, bool is_finding)
{
    void *data;
    strata_log_callback callback = copy_log_callback(&data);
    if (!is_finding && __builtin_expect(strata_report_has_place(), 0))
        strata_report_line(strata_status_name(error->status), error->message);
    if (!callback)
        return;
    const bool before = in_log_callback;
    const int cancel = strata_cancel_forbid(); /* layers above may have begun a request */
    in_log_callback = true;
    callback(error, data);
    in_log_callback = before;
    strata_cancel_restore(cancel);
}

static __attribute__((cold)) void log_notices(strata_thread *thread)
{
    for (strata_notice *notice; (notice = take_notice(thread));) {
        log_error(&notice->error, true);
        strata_host_free(notice);
    }
}

void strata_error_suppression_ended(strata_thread *thread, bool say)
{
    if (say && thread->suppressed.status != STRATA_SUCCESS) {
        thread->error = thread->suppressed;
        log_error(&thread->error, false);
    }
    if (thread->notices)
        log_notices(thread);
}

const strata_error *strata_error_suppressed(void)
{
    const strata_thread *thread = strata_thread_self();
    return thread ? &thread->suppressed : &no_thread_state;
}

const strata_error *strata_error_in_force(void)
{
    const strata_thread *thread = strata_thread_self();
    if (!thread)
        return &no_thread_state;
    return thread->suppress_depth ? &thread->suppressed : &thread->error;
}

void strata_error_set_aside(strata_error_aside *aside)
{
    strata_thread *thread = strata_thread_self();
    aside->thread = thread;
    if (!thread)
        return;
    aside->suppress_depth = thread->suppress_depth;
    aside->notices = thread->notices;
    aside->last_notice = thread->last_notice;
    aside->error = thread->error;
    aside->suppressed = thread->suppressed;
    thread->suppress_depth = 0;
    thread->notices = NULL;
}

/* The present queue is empty unless errors are suppressed. */
void strata_error_take_back(const strata_error_aside *aside)
{
    strata_thread *thread = aside->thread;
    if (!thread)
        return;
    thread->suppress_depth = aside->suppress_depth;
    thread->notices = aside->notices;
    thread->last_notice = aside->last_notice;
    thread->error = aside->error;
    thread->suppressed = aside->suppressed;
}

static void report_unless_suppressed(const strata_error *error, bool is_finding)
{
    const strata_thread *thread = strata_thread_current;
    if (!thread || !thread->suppress_depth)
        log_error(error, is_finding);
}

strata_status strata_error_raise_again(const strata_error *kept)
{
    strata_error *error = strata_error_begin(kept->status);
    *error = *kept;
    report_unless_suppressed(error, false);
    return error->status;
}

static strata_status raise_with(strata_error *error, bool is_finding, const char *format, va_list arguments)
{
    char text[sizeof error->message + 4]; /* truncated again, between characters */
    int length = vsnprintf(text, sizeof text, format, arguments);
    if (error->driver_code == CUDA_ERROR_ILLEGAL_ADDRESS && length >= 0 && (size_t)length < sizeof text)
        strata_fault_candidates_append(text, sizeof text, (size_t)length);
    strata_escape(error->message, sizeof error->message, text);
    report_unless_suppressed(error, is_finding);
    return error->status;
}

strata_status strata_error_raise(strata_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    strata_status status = raise_with(error, false, format, arguments);
    va_end(arguments);
    return status;
}

strata_status strata_error_raise_finding(strata_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    strata_status status = raise_with(error, true, format, arguments);
    va_end(arguments);
    return status;
}

strata_status strata_fail(strata_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    strata_error *error = strata_error_begin(status);
    raise_with(error, false, format, arguments);
    va_end(arguments);
    return status;
}

strata_status strata_fail_host_memory(const char *what)
{
    return strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for %s", what);
}

strata_status strata_status_of_driver(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return STRATA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return STRATA_ERROR_OUT_OF_MEMORY;
    case CUDA_ERROR_DEINITIALIZED:
        return STRATA_ERROR_SHUT_DOWN;
    case CUDA_ERROR_NOT_READY:
        return STRATA_ERROR_NOT_READY;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
        return STRATA_ERROR_STREAM_CAPTURE;
    default:
        return STRATA_ERROR_DRIVER;
    }
}

static _Atomic(bool (*)(void)) look_for_reset;

void strata_error_on_lost_context(bool (*look)(void))
{
    atomic_store_explicit(&look_for_reset, look, memory_order_release);
}

/* The answers to handles of a context that was reset (tests/answers/h200.txt, "primary_reset."). */
static bool is_after_reset(CUresult result)
{
    bool (*look)(void) = atomic_load_explicit(&look_for_reset, memory_order_acquire);
    const bool may_be = result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT ||
                        result == CUDA_ERROR_INVALID_HANDLE;
    return may_be && look && look();
}

strata_status strata_fail_driver(CUresult result, const char *call, const char *format, ...)
{
    if (result == CUDA_ERROR_DEINITIALIZED)
        strata_driver_set_shut_down();
    const bool reset = is_after_reset(result);
    strata_error *error = strata_error_begin(reset ? STRATA_ERROR_DEVICE_RESET : strata_status_of_driver(result));
    error->driver_code = result;
    error->driver_name = strata_driver_error_name(result);
    error->driver_call = call;
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return strata_error_raise(error, "%s: %s returned %s (%d)%s", what, call, error->driver_name, (int)result,
                              reset ? ": the primary context was reset" : "");
}
