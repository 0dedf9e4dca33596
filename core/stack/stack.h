/* Stacks: built from resources, with every operation filled in and the layers' bytes laid out. */
#ifndef STRATA_CORE_STACK_STACK_H
#define STRATA_CORE_STACK_STACK_H

#include "core/blocks/blocks.h"
#include "core/stack/capture_frees.h"

#include <strata/resource.h>
#include <strata/stack.h>

/* A layer with a `completed`, and its argument. */
typedef struct strata_completion_sink {
    void (*completed)(strata_resource *self, const strata_completion *completion);
    strata_resource *layer;
    uint32_t position;
} strata_completion_sink;

struct strata_stack {
    strata_stack_head head;
    strata_device *device;
    strata_capture_frees deferred;
    char *text;
    size_t count;
    strata_resource_ops *ops;                 /* filled copies, one for each layer */
    strata_resource **layers;                 /* outermost first */
    strata_completion_sink *completion_sinks; /* layers with a `completed`, lowest first; ended by one without */
    size_t completion_sink_count;
    const strata_resource *reporter;   /* the owner at the bottom, if its reports go to all of those; else NULL */
    strata_resource **internal_owners; /* layers with an `owns_internally`, lowest first */
    size_t internal_owner_count;
    uint32_t facts_from; /* layers from this position outwards see blocks as the table has them */
    _Atomic bool owned;  /* by a runtime, which destroys it: claimed once, released by that runtime only */
};

/* Whether the layer sees blocks as the table has them: all layers between it and the owner are transparent. */
static inline bool strata_resource_sees_table(const strata_resource *resource)
{
    return resource->position >= resource->stack->facts_from;
}

/* Reports to all sinks. */
static inline void strata_tell_all(const strata_stack *stack, const strata_completion *completion)
{
    for (const strata_completion_sink *each = stack->completion_sinks; each->completed; each++)
        each->completed(each->layer, completion);
}

/* The slow paths of the next two. */
void strata_report_to_some(const strata_resource *owner, const strata_completion *completion);
void strata_report_to_some_above(const strata_resource *layer, const strata_completion *completion);

/* Reports a completion to the layers above an owner. */
static inline void strata_report_completion(const strata_resource *owner, const strata_completion *completion)
{
    if (__builtin_expect(owner->stack->reporter == owner, 1))
        strata_tell_all(owner->stack, completion);
    else
        strata_report_to_some(owner, completion);
}

/* Reports to the layers above a layer that owns some of the stack's blocks beside the owner at the bottom. */
static inline void strata_report_completion_above(const strata_resource *layer, const strata_completion *completion)
{
    if (__builtin_expect(layer->stack->reporter == layer, 1))
        strata_tell_all(layer->stack, completion);
    else
        strata_report_to_some_above(layer, completion);
}

/* The first layer from `resource` downwards that does not forward `charge`: calling it saves the way down. */
strata_resource *strata_resource_charging(strata_resource *resource);

/* For the head of public calls that name a block. Empty: nothing to do. */
static inline bool strata_block_is_empty(const strata_block *block)
{
    return block->address == 0 && block->id.generation == 0;
}

/* A free after the driver's shutdown: no memory is left to free. Ends the block, so that no report of live blocks has
 * it. SUCCESS for any block. */
strata_status strata_free_without_driver(const strata_resource *resource, const strata_block *block);

/* strata_resource_deallocate for a stack's outermost layer and a block; neither is NULL. */
strata_status strata_free_from_top(strata_resource *resource, const strata_block *block, CUstream stream);

/* The error of a use that does not reach the stack; SUCCESS for an empty block, which needs nothing. */
strata_status strata_refuse_use(const strata_resource *resource, const strata_block *block, strata_access access,
                                bool none);

/* Whether a use can be passed on unchanged. */
static inline bool strata_use_is_fine(const strata_resource *resource, const strata_block *block, strata_access access,
                                      strata_access least)
{
    bool fine = resource && block && (unsigned)access >= (unsigned)least &&
                (unsigned)access <= STRATA_ACCESS_READ_WRITE && block->address &&
                strata_driver_state_now() == STRATA_DRIVER_OPEN;
    return __builtin_expect(fine, 1);
}

/* Builds a stack and stores its text; takes nothing over on failure. */
strata_status strata_stack_build_named(strata_resource *const *resources, size_t count, int ordinal, const char *text,
                                       strata_stack **out);

/* Gives a stack to a runtime; false if it has one. */
bool strata_stack_claim(strata_stack *stack);

/* Raises BUSY while the stack has live blocks; `what` holds them: "the runtime". SUCCESS also if it cannot be told. */
strata_status strata_stack_refuse_live(strata_stack *stack, const char *what);

/* What strata_stack_destroy does with a stack without a runtime, and a runtime with its own. */
strata_status strata_stack_close(strata_stack *stack);

#endif
