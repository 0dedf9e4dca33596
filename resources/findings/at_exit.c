/* The check at process exit: everything live or freed, before the driver shuts down.
 *
 * It covers stacks made from a text and not ended; strata_runtime_get's never ends. A layer made by hand may have a
 * callback whose data is gone.
 *
 * The exit handler is registered with the first log, after the driver's and Strata's own: it runs before them, and
 * after handlers that the program registers later. Another thread makes the check (core/stack/exit_look.h); the exiting
 * thread reports its findings. With on_finding=exit the process ends with the guard's status in the library's last
 * destructor, when logs are written. */
#include "resources/findings/exit_list.h"

#include "core/base/report.h"
#include "core/stack/exit_look.h"
#include "core/stack/stack.h"
#include "core/streams/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic bool exiting; /* layers made from now on are not checked */
static bool ends_process;    /* a reported finding ends the process; written by the exiting thread */

/* ---- checking ---- */

/* Whether the device still has its context. One that is gone, as after cudaDeviceReset, took the layer's streams and
 * pinned memory along: they must not be named. It may have begun anew under its handle before any call has noticed. A
 * stopped device still has its context, and a sampling guard reports candidates. */
static bool has_context(strata_device *device)
{
    strata_call_scope scope;
    size_t free_bytes, total;
    if (!strata_device_has_its_context(device) ||
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
            STRATA_SUCCESS)
        return false;
    CUresult result = strata_cu.MemGetInfo(&free_bytes, &total);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_ILLEGAL_ADDRESS;
}

static bool is_about_captures(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* Waits for the device. The wait may end a capture, which no longer matters; a capture prevents the wait. The check
 * meets other errors itself. */
static void wait_for_device(strata_device *device)
{
    strata_call_scope scope;
    if (!strata_cu.CtxSynchronize ||
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
            STRATA_SUCCESS)
        return;
    CUresult result = strata_cu.CtxSynchronize();
    strata_call_scope_leave(&scope);
    if (!is_about_captures(result))
        return;
    strata_fail_driver(
        result, "cuCtxSynchronize",
        "guard: a stream of device %d is being captured at exit; work unknown to Strata may be unchecked",
        device->ordinal);
    exit_list_keep_failure();
}

/* Checks one layer. Round 1 waits for the device first, also for work unknown to Strata, which may never end. Findings
 * are not repeated. */
static void check_layer(const findings_log *log, int round)
{
    const strata_stack *stack = log->layer->stack;
    if (!stack || !has_context(stack->device)) /* no stack: another thread is making it */
        return;
    if (round)
        wait_for_device(stack->device);
    if (log->check(log->layer) != STRATA_SUCCESS)
        exit_list_keep_failure();
}

static void check_all(void)
{
    exit_list_check(check_layer, 2);
}

/* ---- reporting ---- */

static void report_all(void)
{
    exit_finding one;
    size_t count = 0;
    while (exit_list_finding(count, &one)) {
        findings_raise(&one.finding, one.ends_process);
        count++;
    }
    strata_report_text text;
    strata_report_text_begin(&text, true);
    for (size_t i = 0; i < count && exit_list_finding(i, &one); i++) {
        if (one.ends_process)
            strata_guard_finding_print(&one.finding, strata_report_text_add, &text);
        ends_process |= one.ends_process;
    }
    strata_report_text_end(&text);
}

/* A check that could not be made is no error of the program's call, and else only the log callback would hear of it. */
static void write_failure(void)
{
    if (!strata_report_has_place() && strata_report_is_wanted(strata_error_has_log_callback(), false))
        strata_report_line(strata_status_name(strata_last_error()->status), strata_last_error()->message);
}

static void report_failure(bool complete)
{
    strata_error kept = exit_list_failure();
    if (kept.status != STRATA_SUCCESS) {
        strata_error_raise_again(&kept);
        write_failure();
    }
    if (complete)
        return;
    strata_fail(STRATA_ERROR_BUSY,
                "guard: the checks at exit were not complete within %d s; the device may have work that does not end",
                FINDINGS_PATIENCE_MS / 1000);
    write_failure();
}

/* Checks and reports. Not in a forked child, which has no blocks; nor from a log callback that exits, which may hold
 * locks of Strata. */
static void check_at_exit(void)
{
    if (strata_driver_state_now() != STRATA_DRIVER_OPEN || strata_error_is_being_reported() || exit_list_is_empty())
        return;
    atomic_store(&exiting, true);
    bool complete = strata_exit_look_hold(check_all, FINDINGS_PATIENCE_MS);
    report_failure(complete);
    report_all();
}

/* ---- the end ---- */

/* Priority 101: after destructors without a priority, which write logs and reports. */
static __attribute__((destructor(101))) void end_process(void)
{
    if (!ends_process || strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return;
    findings_flush_output();
    _exit(STRATA_GUARD_EXIT_STATUS);
}

/* ---- registration ---- */

/* Registers the exit handler; without host memory there is no check at exit. */
static bool register_handler(void)
{
    return atexit(check_at_exit) == 0;
}

void findings_check_at_exit(findings_log *self, strata_resource *layer, strata_status (*check)(strata_resource *layer))
{
    if (atomic_load(&exiting))
        return;
    self->layer = layer;
    self->check = check;
    exit_list_add(self, register_handler);
}
