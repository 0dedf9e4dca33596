/* The life of a stack after it was built, and its properties. */
#include "core/stack/stack.h"

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/exit_look.h"

#include <stdio.h>
#include <string.h>

void strata_stack_free(strata_stack *stack)
{
    strata_capture_frees_destroy(&stack->deferred);
    strata_table_destroy(stack->head.table);
    strata_host_free(stack->text);
    strata_host_free(stack->ops);
    strata_host_free(stack->layers);
    strata_host_free(stack->completion_sinks);
    strata_host_free(stack->internal_owners);
    strata_host_free(stack);
}

bool strata_stack_claim(strata_stack *stack)
{
    return !atomic_exchange(&stack->owned, true);
}

strata_status strata_stack_refuse_live(strata_stack *stack, const char *what)
{
    strata_resource *top = stack->layers[0];
    strata_usage usage = {0};
    bool usable = strata_driver_state_now() == STRATA_DRIVER_OPEN;
    if (usable && strata_capture_frees_any(&stack->deferred))
        return strata_fail(STRATA_ERROR_BUSY,
                           "blocks of %s were freed inside captures whose end was not seen; say that they have ended "
                           "with strata_stack_captures_ended",
                           what);
    if (usable) {
        strata_error_suppress_begin();
        top->ops->usage(top,
                        &usage); /* live bytes need no driver call: they are valid even if the driver's query fails */
        strata_error_suppress_end(false);
    }
    if (usage.live_blocks == 0)
        return STRATA_SUCCESS;
    for (size_t i = 0; i < stack->count; i++)
        if (stack->layers[i]->ops->end_refused)
            stack->layers[i]->ops->end_refused(stack->layers[i]);
    return strata_fail(STRATA_ERROR_BUSY, "%s still has %zu live block%s of %zu bytes in all; free them first", what,
                       usage.live_blocks, usage.live_blocks == 1 ? "" : "s", usage.live_bytes);
}

/* The uppermost remaining layer. Layers below may still free blocks and report completions. */
static void end_layer(strata_stack *stack, strata_resource *layer)
{
    layer->ops->destroy(layer);
    if (stack->completion_sink_count && stack->completion_sinks[stack->completion_sink_count - 1].layer == layer)
        stack->completion_sinks[--stack->completion_sink_count] = (strata_completion_sink){0};
    if (stack->internal_owner_count && stack->internal_owners[stack->internal_owner_count - 1] == layer)
        stack->internal_owner_count--;
}

strata_status strata_stack_close(strata_stack *stack)
{
    char what[64];
    snprintf(what, sizeof what, "the stack \"%.40s\"", stack->text);
    strata_status status = strata_stack_refuse_live(stack, what);
    if (status != STRATA_SUCCESS)
        return status;
    strata_resource *top = stack->layers[0];
    size_t bytes;
    status = strata_usable() == STRATA_SUCCESS ? top->ops->reap(top, STRATA_REAP_WAIT, &bytes) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS && status != STRATA_ERROR_SHUT_DOWN)
        return status;
    if (!strata_exit_look_enter())
        return STRATA_SUCCESS;
    for (size_t i = 0; i < stack->count; i++)
        end_layer(stack, stack->layers[i]);
    strata_stack_free(stack);
    strata_exit_look_leave();
    return STRATA_SUCCESS;
}

strata_status strata_stack_captures_ended(strata_stack *stack, CUstream stream)
{
    if (!stack)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_captures_ended: stack is NULL");
    strata_status status = strata_usable();
    return status == STRATA_SUCCESS ? strata_capture_frees_flush(&stack->deferred, stream) : status;
}

strata_status strata_stack_destroy(strata_stack *stack)
{
    strata_status status = strata_not_forked();
    if (!stack || status != STRATA_SUCCESS)
        return status;
    if (atomic_load(&stack->owned))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the stack \"%s\" belongs to a runtime, which ends it",
                           stack->text);
    return strata_stack_close(stack);
}

strata_status strata_resource_destroy(strata_resource *resource)
{
    if (!resource)
        return STRATA_SUCCESS;
    if (resource->stack)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the layer \"%s\" is part of a stack, which ends it",
                           resource->ops->name);
    if (!resource->ops || !resource->ops->destroy)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a layer without ops or destroy cannot be ended");
    strata_status status = strata_not_forked();
    if (status == STRATA_SUCCESS)
        resource->ops->destroy(resource);
    return status;
}

strata_resource *strata_stack_top(strata_stack *stack)
{
    if (stack)
        return stack->layers[0];
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_top: the stack is NULL");
    return NULL;
}

strata_resource *strata_stack_layer(strata_stack *stack, const char *name, size_t which)
{
    if (!stack || !name) {
        strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_layer: the stack or the name is NULL");
        return NULL;
    }
    for (size_t i = 0; i < stack->count; i++)
        if (strcmp(stack->layers[i]->ops->name, name) == 0 && which-- == 0)
            return stack->layers[i];
    return NULL;
}

strata_status strata_stack_visit_blocks(strata_stack *stack, void (*visit)(const strata_block *block, void *data),
                                        void *data)
{
    if (!stack || !visit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a visit of blocks without a stack or a function");
    strata_status status = strata_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    const uint32_t end = strata_table_slot_limit(stack->head.table);
    strata_entry *entry;
    for (uint32_t slot = 1; (entry = strata_table_lock_next(stack->head.table, &slot, end));) {
        strata_block block;
        strata_entry_describe(stack->head.table, slot - 1, &block);
        strata_entry_unlock(entry);
        visit(&block, data);
    }
    return STRATA_SUCCESS;
}

int strata_stack_device(const strata_stack *stack)
{
    if (stack)
        return stack->device->ordinal;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_device: the stack is NULL");
    return -1;
}

const char *strata_stack_text(const strata_stack *stack)
{
    if (stack)
        return stack->text;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_text: the stack is NULL");
    return "";
}
