/* Before the program begins; and once its driver is open. */
#include "adapters/exec/exec.h"

#include "adapters/exec/python.h"
#include "core/base/call_stack.h"
#include "core/base/error.h"
#include "driver/driver.h"

#include <strata/control.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end ---- */

/* Of what a full disk has refused until now; the last records are written later. An error may have lost none: of a
 * rotation, and of a reader that was slow. */
static void say_what_log_lacks(const exec_device *device)
{
    strata_stack *stack = strata_runtime_stack(device->runtime);
    uint64_t error = 0, dropped = 0;
    strata_error_suppress_begin();
    if (strata_control(stack, "logging.write_error", &error, NULL) != STRATA_SUCCESS ||
        strata_control(stack, "logging.dropped_records", &dropped, NULL) != STRATA_SUCCESS)
        error = 0;
    strata_error_suppress_end(false);
    if (error && dropped)
        exec_say("the log of device %d is incomplete: %s; %llu records are missing so far", device->ordinal,
                 strerror((int)error), (unsigned long long)dropped);
}

static void report_last(void)
{
    exec_device *device;
    if (!strata_driver_is_open())
        return;
    for (size_t i = 0; (device = exec_device_next(&i));)
        say_what_log_lacks(device);
    if (exec_settings_now.report != EXEC_REPORT_NONE)
        exec_report_last();
}

/* The report comes just before the end of the driver. */
static void arrange_exit(void)
{
    strata_driver_watch_exit();
    if (atexit(report_last) != 0 && exec_settings_now.report != EXEC_REPORT_NONE)
        exec_say("there will be no report at the end: out of host memory");
}

static void watch_exit(void)
{
    static pthread_once_t arranged = PTHREAD_ONCE_INIT;
    pthread_once(&arranged, arrange_exit);
}

/* Exit handlers of the program, and the ends of its static objects, that come before the driver's end free memory and
 * allocate it. The driver's own handler is registered by cuInit, and Strata's right after it: later ones would come
 * before the end of an object that was made between cuInit and the first request. */
EXEC_EXPORT CUresult CUDAAPI cuInit(unsigned flags)
{
    const CUresult result = EXEC_CALL(cuInit, flags);
    if (result == CUDA_SUCCESS && exec_is_wanted())
        watch_exit();
    return result;
}

/* ---- the beginning ---- */

/* Called when the driver is open. */
static void arrange_report(void)
{
    exec_python_look();
    watch_exit(); /* where cuInit was called past its hook */
    if (exec_settings_now.report == EXEC_REPORT_NONE)
        return;
    exec_caches_start();
    exec_live_start();
}

static __attribute__((constructor)) void begin(void)
{
    if (!exec_is_wanted()) { /* its settings stay empty, also where it is linked to the driver, and so to the hooks */
        exec_clean_environment();
        return;
    }
    exec_read_settings();
#if !defined __SANITIZE_ADDRESS__ /* else it must be before this library in children, too */
    exec_leave_sanitizer();
#endif
    if (exec_settings_now.report != EXEC_REPORT_NONE)
        exec_report_keep_output();
    strata_call_stack_set_source(exec_python_add_frames);
    exec_beginnings_watch();
    exec_on_stack_built(exec_passed_move);
    exec_on_reset_met(exec_device_found_reset);
    exec_on_driver_open(arrange_report);
}
