/* The calling thread's error record. */
#ifndef STRATA_CORE_BASE_ERROR_H
#define STRATA_CORE_BASE_ERROR_H

#include "core/base/thread.h"

#include <strata/resource.h>
#include <strata/status.h>

#include <stdbool.h>

/* The record, cleared, with `status` set, for the caller to fill and raise. Never NULL. */
strata_error *strata_error_begin(strata_status status);

/* Writes the message, calls the log callback, returns the record's status. The second is for a finding or a leak, which
 * its layer writes to STRATA_REPORT itself (core/base/report.h). */
strata_status strata_error_raise(strata_error *error, const char *format, ...) STRATA_PRINTF(2, 3);
strata_status strata_error_raise_finding(strata_error *error, const char *format, ...) STRATA_PRINTF(2, 3);

/* For an attempt with a fallback: in between, this thread's errors are neither kept nor logged. They nest. */
static inline void strata_error_suppress_begin(void)
{
    strata_thread *thread = strata_thread_self();
    if (!thread || thread->suppress_depth++)
        return;
    strata_error *last = &thread->suppressed; /* not all of it: attempts are frequent, its message is long */
    last->status = STRATA_SUCCESS;
    last->driver_code = CUDA_SUCCESS;
    last->driver_name = last->driver_call = NULL;
    last->message[0] = '\0';
}

/* The rest of the outermost end: with `say` raises the last suppressed error, and logs queued findings. */
__attribute__((cold)) void strata_error_suppression_ended(strata_thread *thread, bool say);

/* With `say`, the outermost end raises the last error. A thread whose state was created meanwhile suppressed nothing.
 */
static inline void strata_error_suppress_end(bool say)
{
    strata_thread *thread = strata_thread_current;
    if (!thread || !thread->suppress_depth || --thread->suppress_depth)
        return;
    if (__builtin_expect(say || thread->notices, 0))
        strata_error_suppression_ended(thread, say);
}

/* A finding fails no call. While errors are suppressed it is queued for the log callback, or dropped if the queue is
 * full or memory is short. */
strata_error *strata_error_begin_finding(strata_status status);

/* The last error since suppress_begin, to be copied before suppress_end; SUCCESS: none. Never NULL. */
const strata_error *strata_error_suppressed(void);

/* The thread's last failure, suppressed or not. Never NULL. */
const strata_error *strata_error_in_force(void);

/* Around a call of program code, whose errors are always kept and logged. The second call restores the thread's error
 * state. */
struct strata_thread;
struct strata_notice;
typedef struct strata_error_aside {
    struct strata_thread *thread; /* NULL: the thread has no state */
    uint32_t suppress_depth;
    struct strata_notice *notices, *last_notice;
    strata_error error, suppressed;
} strata_error_aside;
void strata_error_set_aside(strata_error_aside *aside);
void strata_error_take_back(const strata_error_aside *aside);

/* Raises a copy of an error that was kept. */
strata_status strata_error_raise_again(const strata_error *kept);

bool strata_error_has_log_callback(void);

/* Whether the calling thread is inside the log callback. */
bool strata_error_is_being_reported(void);

/* Raises the error of a failed driver call, with the driver's code and name. `call` is the entry point, such as
 * "cuMemAlloc". The status is strata_status_of_driver's. */
strata_status strata_fail_driver(CUresult result, const char *call, const char *format, ...) STRATA_PRINTF(3, 4);
strata_status strata_status_of_driver(CUresult result);

/* look() says whether a device's primary context was reset; it takes no lock. Called when a driver call's result may
 * mean that: the error is then DEVICE_RESET. */
void strata_error_on_lost_context(bool (*look)(void));

strata_status strata_fail_host_memory(const char *what);

#endif
