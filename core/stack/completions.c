/* Completions that only some layers receive, because a layer owns the block internally. */
#include "core/stack/completions.h"

/* The position of the layer that owns a block internally; 0 if none does. */
static uint32_t position_of_internal_owner(const strata_stack *stack, strata_block_id id)
{
    for (size_t i = 0; i < stack->internal_owner_count; i++)
        if (stack->internal_owners[i]->ops->owns_internally(stack->internal_owners[i], id))
            return stack->internal_owners[i]->position;
    return 0;
}

/* To layers at position `from` and below, and above `below`. */
static void report_to_layers(const strata_stack *stack, const strata_completion *completion, uint32_t from,
                             uint32_t below)
{
    for (const strata_completion_sink *each = stack->completion_sinks; each->completed; each++)
        if (each->position >= from && each->position < below)
            each->completed(each->layer, completion);
}

void strata_report_completion_slow(const strata_resource *owner, const strata_completion *completion)
{
    const strata_stack *stack = owner->stack;
    report_to_layers(stack, completion, position_of_internal_owner(stack, completion->id), UINT32_MAX);
}

void strata_report_completion_above_slow(const strata_resource *layer, const strata_completion *completion)
{
    const strata_stack *stack = layer->stack;
    report_to_layers(stack, completion, position_of_internal_owner(stack, completion->id), layer->position);
}
