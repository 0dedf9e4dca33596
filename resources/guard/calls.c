/* Public calls on a guard of either kind. */
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "resources/guard/internal.h"
#include "resources/sampling/sampling.h"

static bool is_in_stack(const strata_resource *resource)
{
    return resource->ops && resource->stack;
}

/* The first guard from the given layer down; NULL: none. */
static strata_resource *find_guard(strata_resource *resource)
{
    for (strata_resource *layer = resource; layer; layer = strata_resource_next_below(resource, layer))
        if (is_in_stack(layer) && (guard_is_one(layer) || sampling_is_one(layer)))
            return layer;
    return NULL;
}

static findings_log *log_of(strata_resource *found)
{
    return guard_is_one(found) ? &((guard *)found)->log : sampling_findings(found);
}

static strata_status check(strata_resource *found)
{
    return guard_is_one(found) ? guard_check_everything((guard *)found) : sampling_check(found);
}

void guard_check_at_exit(strata_resource *resource)
{
    findings_check_at_exit(log_of(resource), resource, check);
}

strata_status strata_guard_check(strata_resource *resource, size_t *findings)
{
    if (findings)
        *findings = 0;
    strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    strata_resource *found = find_guard(resource);
    if (!found)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_guard_check: no guard at or below this layer");
    status = check(found);
    size_t count = atomic_exchange_explicit(&log_of(found)->unseen, 0, memory_order_relaxed);
    if (findings)
        *findings = count;
    if (status != STRATA_SUCCESS || !count)
        return status;
    return strata_fail(STRATA_ERROR_CORRUPTED, "guard: %zu finding%s since the last check", count,
                       count == 1 ? "" : "s");
}

bool strata_guard_take_finding(strata_resource *resource, strata_guard_finding *out)
{
    strata_resource *found = find_guard(resource);
    return found && out && strata_check_not_forked() == STRATA_SUCCESS && findings_take(log_of(found), out);
}

void strata_guard_fault_candidates_print(strata_resource *resource, strata_write_callback write, void *data)
{
    if (!write || strata_check_not_forked() != STRATA_SUCCESS)
        return;
    for (strata_resource *layer = resource; layer; layer = strata_resource_next_below(resource, layer))
        if (is_in_stack(layer) && sampling_is_one(layer))
            sampling_print_candidates(layer, write, data);
}
