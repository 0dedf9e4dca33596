/* Completions that only some layers receive, because one owns the block internally, or because the stack has
 * several owners. */
#include "core/stack/completions.h"

/* Whether a layer is the one at `position` or above it: with branches, not all lower positions are above it. */
static bool is_at_or_above(const strata_resource *layer, uint32_t position)
{
    return layer->position <= position && position < layer->stack->ends[layer->position];
}

/* The position of the lowest layer above the reporter that owns the block internally; 0 if there is none. */
static uint32_t position_of_internal_owner(const strata_stack *stack, const strata_resource *reporter,
                                           strata_block_id id)
{
    for (size_t i = 0; i < stack->internal_owner_count; i++)
        if (is_at_or_above(stack->internal_owners[i], reporter->position) &&
            stack->internal_owners[i]->ops->owns_internally(stack->internal_owners[i], id))
            return stack->internal_owners[i]->position;
    return 0;
}

/* Reports to the layers from position `from` down to the reporter, itself included if `reporter_too`. */
static void report_to_layers(const strata_resource *reporter, const strata_completion *completion, uint32_t from,
                             bool reporter_too)
{
    for (const strata_completion_sink *each = reporter->stack->completion_sinks; each->completed; each++)
        if (each->position >= from && is_at_or_above(each->layer, reporter->position) &&
            (reporter_too || each->layer != reporter))
            each->completed(each->layer, completion);
}

void strata_report_completion_slow(const strata_resource *owner, const strata_completion *completion)
{
    report_to_layers(owner, completion, position_of_internal_owner(owner->stack, owner, completion->id), true);
}

void strata_report_completion_above_slow(const strata_resource *layer, const strata_completion *completion)
{
    report_to_layers(layer, completion, position_of_internal_owner(layer->stack, layer, completion->id), false);
}
