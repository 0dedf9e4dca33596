/* Turns the checker on, by setting the hooks that order/, memory/, kernels/ and graph/ call. They stay when it is
 * turned off, for what it still holds then. */
#include "check/check.h"

static uint64_t completed(sim_op *op)
{
    sim_check_completed(op);
    return sim_check.order;
}

static const sim_check_hooks hooks = {
    .on = true,
    .submitting = sim_check_submitting,
    .submitted = sim_check_submitted,
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
    .pages_locked = sim_check_pages_locked,
};

CUresult sim_check_turn_on(uint32_t modes)
{
    sim_hooks.check = &hooks;
    return sim_check_begin(modes);
}
