/* Sets the hooks that order/, memory/, kernels/ and graph/ call. They stay when the checker is turned off, to release
 * what it holds. */
#include "check/check.h"

static void submitted(sim_op *op)
{
    sim_check_submitted(op);
    if (op->record)
        sim_host_pages_close(op);
}

static uint64_t completed(sim_op *op)
{
    sim_check_completed(op);
    return sim_check.order;
}

static const sim_check_hooks hooks = {
    .on = true,
    .submitted = submitted,
    .running = sim_check_running,
    .completed = completed,
    .host_function = sim_check_host_function,
    .made = sim_check_made,
    .access = sim_check_access,
    .allocated = sim_check_allocated,
    .freed_now = sim_check_freed_now,
    .forget = sim_check_forget,
    .hidden = sim_check_hidden,
    .written = sim_check_written,
    .free_asked = sim_check_free_asked,
    .freed_after = sim_check_freed_after,
    .free_failed = sim_access_record_drop,
    .watches_pages = sim_check_watches_pages,
    .watch = sim_check_watch,
    .unwatch = sim_check_unwatch,
};

CUresult sim_check_turn_on(uint32_t modes)
{
    sim_hooks.check = &hooks;
    return sim_check_begin(modes);
}
