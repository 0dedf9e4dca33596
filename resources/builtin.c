/* Registering the layers that come with the library, before any other one and before the first stack text is read. */
#include "resources/builtin.h"

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/stack/layers.h"
#include "core/stack/stack_text.h"
#include "resources/fused/fused.h"

static const strata_layer *const builtin[] = {
    &strata_async_layer,
    &strata_direct_layer,
    &strata_null_layer,
    &strata_budget_layer,
    &strata_statistics_layer,
    &strata_logging_layer,
    &strata_guard_layer,
    &strata_managed_layer,
    &strata_pinned_layer,
    &strata_aligned_layer,
    &strata_failure_callback_layer,
    &strata_fallback_layer,
    &strata_fault_layer,
    &strata_prefetch_layer,
    &strata_nvtx_layer,
    &strata_pool_layer,
    &strata_fixed_layer,
    &strata_binning_layer,
};
static _Atomic bool registered; /* all of them; set once */

strata_status strata_builtin_register(void)
{
    strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS || registered)
        return status;
    strata_fused_offer();
    for (size_t i = 0; i < sizeof builtin / sizeof builtin[0] && status == STRATA_SUCCESS; i++)
        status = strata_layer_add(builtin[i], true);
    if (status == STRATA_SUCCESS)
        registered = true;
    return status;
}

strata_status strata_layer_register(const strata_layer *layer)
{
    strata_status status = strata_check_not_forked();
    if (status == STRATA_SUCCESS)
        status = strata_builtin_register();
    return status == STRATA_SUCCESS ? strata_layer_add(layer, false) : status;
}

strata_status strata_stack_create(const char *text, int ordinal, strata_stack **out)
{
    if (out)
        *out = NULL;
    strata_status status = strata_builtin_register();
    return status == STRATA_SUCCESS ? strata_stack_create_from_text(text, ordinal, out) : status;
}
