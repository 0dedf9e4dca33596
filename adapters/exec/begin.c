/* Before the program begins; and once its driver is open. */
#include "adapters/exec/exec.h"

#include "adapters/exec/python.h"
#include "core/base/call_stack.h"

#include <stdlib.h>

/* Called when the driver is open: a report that is arranged after the driver's start comes before its end. */
static void arrange_report(void)
{
    exec_python_look();
    if (exec_settings_now.report == EXEC_REPORT_NONE)
        return;
    if (atexit(exec_report_last) != 0)
        exec_say("there will be no report at the end: out of host memory");
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
