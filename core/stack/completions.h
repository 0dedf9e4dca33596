/* An owner tells the layers above it that freed bytes are free, or reused. */
#ifndef STRATA_CORE_STACK_COMPLETIONS_H
#define STRATA_CORE_STACK_COMPLETIONS_H

#include "core/stack/stack.h"

/* Calls all of the stack's completion sinks. */
static inline void strata_report_to_all(const strata_stack *stack, const strata_completion *completion)
{
    for (const strata_completion_sink *each = stack->completion_sinks; each->completed; each++)
        each->completed(each->layer, completion);
}

void strata_report_completion_slow(const strata_resource *owner, const strata_completion *completion);
void strata_report_completion_above_slow(const strata_resource *layer, const strata_completion *completion);

/* Reports that bytes of an owner's block are free or reused to the layers that know the block. */
static inline void strata_report_completion(const strata_resource *owner, const strata_completion *completion)
{
    if (__builtin_expect(owner->stack->reporter == owner, 1))
        strata_report_to_all(owner->stack, completion);
    else
        strata_report_completion_slow(owner, completion);
}

/* As strata_report_completion, for a layer that owns some of the stack's blocks, beside the owner at the bottom: it
 * gets no report of its own. */
static inline void strata_report_completion_above(const strata_resource *layer, const strata_completion *completion)
{
    if (__builtin_expect(layer->stack->reporter == layer, 1))
        strata_report_to_all(layer->stack, completion);
    else
        strata_report_completion_above_slow(layer, completion);
}

#endif
