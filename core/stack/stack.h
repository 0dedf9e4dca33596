/* A stack: its layers with every operation filled in, its table of blocks, and the receivers of completions. */
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
    strata_resource_ops *ops;                 /* filled copies, one a layer */
    strata_resource **layers;                 /* outermost first */
    strata_completion_sink *completion_sinks; /* layers with a `completed`, lowest first; ended by one without */
    size_t completion_sink_count;
    const strata_resource *reporter;   /* the owner at the bottom, if its reports go to all of those; else NULL */
    strata_resource **internal_owners; /* layers with an `owns_internally`, lowest first */
    size_t internal_owner_count;
    uint32_t facts_from; /* layers from this position down see blocks as the table has them */
    _Atomic bool owned;  /* by a runtime, which destroys it: claimed once, released by that runtime only */
};

/* Whether the layer sees blocks as the table has them: all layers below it, down to the owner, are transparent. */
static inline bool strata_resource_sees_table(const strata_resource *resource)
{
    return resource->position >= resource->stack->facts_from;
}

/* The first layer from `resource` down that does not forward `charge`. */
strata_resource *strata_resource_charging(strata_resource *resource);

/* Gives a stack to a runtime; false if it has one. */
bool strata_stack_claim(strata_stack *stack);

/* Raises BUSY while the stack has live blocks; `what` holds them: "the runtime". SUCCESS also if it cannot be told. */
strata_status strata_stack_refuse_live(strata_stack *stack, const char *what);

/* strata_stack_destroy, also for a runtime's own stack. */
strata_status strata_stack_close(strata_stack *stack);

/* For a stack whose layers are destroyed or disconnected. */
void strata_stack_free(strata_stack *stack);

#endif
