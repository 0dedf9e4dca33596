/* A stack: its layers with every operation filled in, its table of blocks, the receivers of completions. */
#ifndef STRATA_CORE_STACK_STACK_H
#define STRATA_CORE_STACK_STACK_H

#include "core/blocks/blocks.h"
#include "core/stack/capture_frees.h"

#include <strata/resource.h>
#include <strata/stack.h>

/* Result of the operation allocate_own, returned in registers, so that no layer looks the entry up again. */
typedef struct strata_made {
    strata_status status;
    strata_entry *entry;
} strata_made;

enum { STRATA_CHARGE_UNIT = 512 };

/* The operation table's charge_table: what `charge` returns for small requests. */
typedef struct strata_charge_table {
    const uint16_t *units; /* the charge in units, by (bytes - 1) / STRATA_CHARGE_UNIT */
    size_t count;
} strata_charge_table;

/* A result of deallocate_own: success, and all bytes are free or reused already. No status has this value. */
#define STRATA_FREE_COMPLETE ((strata_status)0x100)

/* A layer with a `completed`, and its argument. */
typedef struct strata_completion_sink {
    void (*completed)(strata_resource *self, const strata_completion *completion);
    strata_resource *layer;
    uint32_t position;
} strata_completion_sink;

struct strata_stack {
    strata_stack_head head;
    strata_device *device;
    strata_capture_frees capture_frees;
    char *text;
    size_t count;
    strata_resource_ops *ops; /* filled copies, one a layer */
    struct {
        strata_status (*allocate)(strata_resource *self, const strata_request *request, strata_block *out);
        strata_status (*deallocate)(strata_resource *self, const strata_block *block, CUstream stream);
        strata_made (*allocate_own)(strata_resource *self, const strata_request *request, strata_block *out);
        strata_status (*deallocate_own)(strata_resource *self, const strata_block *block, strata_entry *entry,
                                        strata_timeline *timeline);
        strata_made (*allocate_plain)(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
        strata_status (*top_allocate)(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
        strata_status (*top_deallocate)(strata_resource *self, const strata_block *block);
    } unannounced;                            /* the outermost layer's operations that regions.c has replaced */
    strata_resource **layers;                 /* outermost first, branch after branch */
    uint32_t *ends;                           /* by position: the position behind the layers below */
    strata_completion_sink *completion_sinks; /* lowest first; ended by one without `completed` */
    size_t completion_sink_count;
    const strata_resource *reporter;   /* the owner at the bottom, if all sinks get its completions; else NULL */
    strata_resource **internal_owners; /* layers with an `owns_internally`, lowest first */
    size_t internal_owner_count;
    uint32_t facts_from;      /* layers from here down see blocks as the table has them */
    bool memory_of_program;   /* of an owner, which may have it from another stack */
    _Atomic bool owned;       /* by a runtime, which destroys it: claimed once, released by that runtime only */
    _Atomic(void *) runtime;  /* the owner, once complete; NULL when abandoned. Any thread that pins the stack */
    strata_stack *next_stack; /* neighbours.c; guarded by its lock, as the next two */
    uint64_t serial;
    unsigned pins; /* by threads that ask the stack */
};

/* Whether the layer sees blocks as the table has them: all layers between it and the owner are transparent. */
static inline bool strata_resource_sees_table(const strata_resource *resource)
{
    return resource->position >= resource->stack->facts_from;
}

/* Whether the table may have blocks that a layer cuts up, such as chunks of a pool over `direct`: no search finds them.
 * A stack with branches counts as one. */
static inline bool strata_stack_may_cut_blocks(const strata_stack *stack)
{
    return !stack->reporter;
}

/* The layer after `layer` in a walk over `from` and all layers below it, of every branch; NULL after the last. */
static inline strata_resource *strata_resource_next_below(const strata_resource *from, const strata_resource *layer)
{
    const strata_stack *stack = layer->stack;
    return stack && layer->position + 1 < stack->ends[from->position] ? stack->layers[layer->position + 1] : NULL;
}

/* The first layer from `resource` down that does not forward `charge`. */
strata_resource *strata_resource_charging(strata_resource *resource);

/* Whether uses are tracked by the table alone: no layer hears of them. */
bool strata_resource_tracks_plainly(const strata_resource *resource);

/* Makes the stack a runtime's; false if it belongs to one already. */
bool strata_stack_claim(strata_stack *stack);

/* Raises BUSY while the stack has live blocks. `what` names their holder in the message: "the runtime". SUCCESS also if
 * the blocks cannot be counted. */
strata_status strata_check_stack_empty(strata_stack *stack, const char *what);

/* Waits for all pending frees before the stack is destroyed. `unwaited`: from strata_devices_wait_if_uncovered, raised
 * where a reap fails because of it. */
strata_status strata_reap_finally(strata_resource *top, const strata_error *unwaited);

/* strata_stack_destroy, also for a runtime's own stack. */
strata_status strata_stack_close(strata_stack *stack);

/* Frees a stack whose layers are destroyed or disconnected. */
void strata_stack_free(strata_stack *stack);

#endif
