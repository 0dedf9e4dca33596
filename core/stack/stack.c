/* The life of a built stack, and its properties. */
#include "core/stack/stack.h"

#include "core/base/cancel.h"
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/stack/calls.h"
#include "core/stack/exit_look.h"
#include "core/stack/neighbours.h"
#include "core/streams/device_wait.h"

#include <stdio.h>
#include <string.h>

void strata_stack_free(strata_stack *stack)
{
    strata_capture_frees_destroy(&stack->capture_frees);
    strata_table_destroy(stack->head.table);
    strata_host_free(stack->text);
    strata_host_free(stack->ops);
    strata_host_free(stack->layers);
    strata_host_free(stack->ends);
    strata_host_free(stack->completion_sinks);
    strata_host_free(stack->internal_owners);
    strata_host_free(stack);
}

bool strata_stack_claim(strata_stack *stack)
{
    return !atomic_exchange(&stack->owned, true);
}

strata_status strata_check_stack_empty(strata_stack *stack, const char *what)
{
    strata_resource *top = stack->layers[0];
    strata_usage usage = {0};
    bool usable = strata_device_is_usable(stack->device);
    if (usable && strata_capture_frees_any(&stack->capture_frees))
        return strata_fail(STRATA_ERROR_BUSY,
                           "blocks of %s were freed inside captures that may not have ended; if they have, call "
                           "strata_stack_captures_ended",
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
    return strata_fail(STRATA_ERROR_BUSY, "%s still has %zu live block%s, %s in all; free them first", what,
                       usage.live_blocks, usage.live_blocks == 1 ? "" : "s", strata_size_text(usage.live_bytes).text);
}

/* Destroys the uppermost remaining layer. Layers below may still free blocks and report completions. */
static void end_layer(strata_stack *stack, strata_resource *layer)
{
    layer->ops->destroy(layer);
    if (stack->completion_sink_count && stack->completion_sinks[stack->completion_sink_count - 1].layer == layer)
        stack->completion_sinks[--stack->completion_sink_count] = (strata_completion_sink){0};
    if (stack->internal_owner_count && stack->internal_owners[stack->internal_owner_count - 1] == layer)
        stack->internal_owner_count--;
}

strata_status strata_reap_finally(strata_resource *top, const strata_error *unwaited)
{
    size_t bytes;
    if (unwaited->status == STRATA_SUCCESS)
        return strata_reap_internally(top, STRATA_REAP_WAIT, &bytes);
    strata_error_suppress_begin();
    const strata_status status = strata_reap_internally(top, STRATA_REAP_WAIT, &bytes);
    const bool unknown = status == STRATA_ERROR_STREAM_MISUSE;
    strata_error_suppress_end(status != STRATA_SUCCESS && !unknown);
    return unknown ? strata_error_raise_again(unwaited) : status;
}

strata_status strata_stack_close(strata_stack *stack)
{
    char what[64];
    strata_error unwaited;
    snprintf(what, sizeof what, "the stack \"%.40s\"", stack->text);
    strata_device_is_usable_now(stack->device); /* before stored handles are used */
    strata_status status = strata_check_stack_empty(stack, what);
    if (status != STRATA_SUCCESS)
        return status;
    if (strata_device_is_usable(stack->device)) {
        strata_devices_wait_if_uncovered(&unwaited);
        status = strata_reap_finally(stack->layers[0], &unwaited);
    }
    if (status != STRATA_SUCCESS && status != STRATA_ERROR_SHUT_DOWN && status != STRATA_ERROR_DEVICE_RESET)
        return status;
    strata_neighbours_leave(stack);
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
    strata_status status = strata_check_driver();
    return status == STRATA_SUCCESS ? strata_capture_frees_flush(&stack->capture_frees, stream) : status;
}

strata_status strata_stack_destroy(strata_stack *stack)
{
    strata_status status = strata_check_not_forked();
    if (!stack || status != STRATA_SUCCESS)
        return status;
    if (atomic_load(&stack->owned))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "stack \"%s\" belongs to a runtime and is destroyed with it",
                           stack->text);
    const int cancel = strata_cancel_forbid();
    status = strata_stack_close(stack);
    strata_cancel_restore(cancel);
    return status;
}

strata_status strata_resource_destroy(strata_resource *resource)
{
    if (!resource)
        return STRATA_SUCCESS;
    if (resource->stack)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "layer \"%s\" belongs to a stack and is destroyed with it",
                           resource->ops->name);
    if (!resource->ops || !resource->ops->destroy)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_resource_destroy: ops or ops->destroy is NULL");
    strata_status status = strata_check_not_forked();
    if (status == STRATA_SUCCESS)
        resource->ops->destroy(resource);
    return status;
}

strata_resource *strata_stack_top(strata_stack *stack)
{
    if (stack)
        return stack->layers[0];
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_top: stack is NULL");
    return NULL;
}

strata_resource *strata_stack_layer(strata_stack *stack, const char *name, size_t which)
{
    if (!stack || !name) {
        strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_layer: stack or name is NULL");
        return NULL;
    }
    for (size_t i = 0; i < stack->count; i++)
        if (strcmp(stack->layers[i]->ops->name, name) == 0 && which-- == 0)
            return stack->layers[i];
    return NULL;
}

bool strata_stack_is_host_readable(const strata_stack *stack)
{
    bool readable = stack != NULL;
    for (size_t i = 0; readable && i < stack->count; i++) {
        strata_resource *layer = stack->layers[i];
        readable = layer->upstream || !(layer->ops->capabilities(layer) & STRATA_CAPABILITY_DEVICE_MEMORY);
    }
    return readable;
}

strata_status strata_stack_visit_blocks(strata_stack *stack, void (*visit)(const strata_block *block, void *data),
                                        void *data)
{
    if (!stack || !visit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_visit_blocks: stack or visit is NULL");
    strata_status status = strata_check_not_forked();
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
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_device: stack is NULL");
    return -1;
}

const char *strata_stack_text(const strata_stack *stack)
{
    if (stack)
        return stack->text;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_text: stack is NULL");
    return "";
}
