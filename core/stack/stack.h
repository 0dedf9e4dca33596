/* Stacks: built from resources, with every operation filled in and the layers' bytes laid out. */
#ifndef STRATA_CORE_STACK_STACK_H
#define STRATA_CORE_STACK_STACK_H

#include "core/blocks/blocks.h"
#include "core/stack/capture_frees.h"

#include <strata/resource.h>
#include <strata/stack.h>

/* A layer that wants to know of completions, with what its call takes beside it. */
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
    strata_completion_sink *completion_sinks; /* those with a `completed`, lowest first; one without ends the list */
    size_t completion_sink_count;
    const strata_resource *reporter;   /* the owner at the bottom, if what it reports is for all of those; else NULL */
    strata_resource **internal_owners; /* those with a `keeps`, lowest first */
    size_t internal_owner_count;
    uint32_t facts_from; /* layers from this position on see blocks as the table has them */
    _Atomic bool owned;  /* by a runtime, which ends it: claimed once, given up by that runtime alone */
};

/* Whether what the table says of a block is what the layer sees of it: all between it and the owner pass facts on. */
static inline bool strata_resource_sees_table(const strata_resource *resource)
{
    return resource->position >= resource->stack->facts_from;
}

/* Tells all that are interested. */
static inline void strata_tell_all(const strata_stack *stack, const strata_completion *completion)
{
    for (const strata_completion_sink *each = stack->completion_sinks; each->completed; each++)
        each->completed(each->layer, completion);
}

/* The general ways of the next two. */
void strata_report_to_some(const strata_resource *owner, const strata_completion *completion);
void strata_report_to_some_above(const strata_resource *layer, const strata_completion *completion);

/* Tells the layers above an owner of a completion. */
static inline void strata_report_completion(const strata_resource *owner, const strata_completion *completion)
{
    if (__builtin_expect(owner->stack->reporter == owner, 1))
        strata_tell_all(owner->stack, completion);
    else
        strata_report_to_some(owner, completion);
}

/* Tells the layers above a layer that owns some of the stack's blocks beside the owner at the bottom. */
static inline void strata_report_completion_above(const strata_resource *layer, const strata_completion *completion)
{
    if (__builtin_expect(layer->stack->reporter == layer, 1))
        strata_tell_all(layer->stack, completion);
    else
        strata_report_to_some_above(layer, completion);
}

/* The first of a resource of a stack and those below it that does not forward `charge`: asking it saves the way down.
 */
strata_resource *strata_resource_charging(strata_resource *resource);

/* The head of every public call that names a block. Empty: nothing to do. */
static inline bool strata_block_is_empty(const strata_block *block)
{
    return block->address == 0 && block->id.generation == 0;
}

/* A free once the driver has shut down: there is no memory any more to give back. The block is noted to be gone, so
 * that no report of what is live has it. SUCCESS, whatever the block is. */
strata_status strata_free_without_driver(const strata_resource *resource, const strata_block *block);

/* strata_resource_deallocate for the outermost layer of a stack and a block, of which neither is NULL. */
strata_status strata_free_from_top(strata_resource *resource, const strata_block *block, CUstream stream);

/* Why a use is refused before it reaches the stack; SUCCESS for an empty block, which needs nothing. */
strata_status strata_refuse_use(const strata_resource *resource, const strata_block *block, strata_access access,
                                bool none);

/* Whether a use can be passed on as it is. */
static inline bool strata_use_is_fine(const strata_resource *resource, const strata_block *block, strata_access access,
                                      strata_access least)
{
    bool fine = resource && block && (unsigned)access >= (unsigned)least &&
                (unsigned)access <= STRATA_ACCESS_READ_WRITE && block->address &&
                strata_driver_state_now() == STRATA_DRIVER_OPEN;
    return __builtin_expect(fine, 1);
}

/* Builds with a text to remember; takes nothing over on failure. */
strata_status strata_stack_build_named(strata_resource *const *resources, size_t count, int ordinal, const char *text,
                                       strata_stack **out);

/* Makes a stack a runtime's own; false if it has one already. */
bool strata_stack_claim(strata_stack *stack);

/* BUSY, raised, while the stack has live blocks; `what` holds them: "the runtime". SUCCESS too where nobody can say. */
strata_status strata_stack_refuse_live(strata_stack *stack, const char *what);

/* What strata_stack_destroy does with a stack that is nobody's, and a runtime with its own. */
strata_status strata_stack_close(strata_stack *stack);

/* Whether `text` can be read, once the layers that come with the library are registered. Makes nothing and needs no
 * driver. Errors: SYNTAX, OUT_OF_HOST_MEMORY. */
strata_status strata_stack_check_text(const char *text);

/* strata_stack_create, once the layers that come with the library are registered. */
strata_status strata_stack_create_from_text(const char *text, int ordinal, strata_stack **out);

#endif
