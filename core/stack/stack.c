/* Building stacks. A layer writes only the operations that it changes; each missing one becomes a forward to the layer
 * below or, at the bottom, a default for owners without it. */
#include "core/stack/stack.h"

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "core/stack/exit_look.h"

#include <stdio.h>
#include <string.h>

enum { LAYER_LIMIT = 64, LAYER_BYTES_LIMIT = 256 };

/* ---- operations that forward ---- */

#define UP(self)          ((self)->upstream)
#define CALL_UP(self, op) UP(self)->ops->op

static strata_status forward_allocate(strata_resource *self, const strata_request *request, strata_block *out)
{
    return CALL_UP(self, allocate)(UP(self), request, out);
}
static strata_status forward_deallocate(strata_resource *self, const strata_block *block, CUstream stream)
{
    return CALL_UP(self, deallocate)(UP(self), block, stream);
}
static strata_status forward_prepare(strata_resource *self, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    return CALL_UP(self, prepare_use)(UP(self), block, stream, access);
}
static strata_status forward_finish(strata_resource *self, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    return CALL_UP(self, finish_use)(UP(self), block, stream, access);
}
static strata_status forward_record(strata_resource *self, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    return CALL_UP(self, record_use)(UP(self), block, stream, access);
}
static strata_status forward_reap(strata_resource *self, strata_reap_mode mode, size_t *bytes)
{
    return CALL_UP(self, reap)(UP(self), mode, bytes);
}
static strata_status forward_trim(strata_resource *self, size_t keep_bytes, size_t *bytes)
{
    return CALL_UP(self, trim)(UP(self), keep_bytes, bytes);
}
static strata_status forward_usage(strata_resource *self, strata_usage *usage)
{
    return CALL_UP(self, usage)(UP(self), usage);
}
static strata_status forward_charge(strata_resource *self, const strata_request *request, size_t *bytes)
{
    return CALL_UP(self, charge)(UP(self), request, bytes);
}
static strata_status forward_reusable(strata_resource *self, const strata_request *request, size_t *bytes,
                                      strata_block_id *of)
{
    return CALL_UP(self, reusable)(UP(self), request, bytes, of);
}
static strata_status forward_budget(strata_resource *self, strata_budget_snapshot *snapshot)
{
    return CALL_UP(self, budget)(UP(self), snapshot);
}
static uint32_t forward_capabilities(strata_resource *self)
{
    return CALL_UP(self, capabilities)(UP(self));
}
static strata_status forward_find(strata_resource *self, CUdeviceptr address, strata_block *out)
{
    return CALL_UP(self, find)(UP(self), address, out);
}
static int forward_device(strata_resource *self)
{
    return CALL_UP(self, device)(UP(self));
}
static strata_status forward_synchronize(strata_resource *self, CUstream stream)
{
    return CALL_UP(self, synchronize)(UP(self), stream);
}

static const strata_resource_ops forwarders = {
    .allocate = forward_allocate,
    .deallocate = forward_deallocate,
    .prepare_use = forward_prepare,
    .finish_use = forward_finish,
    .record_use = forward_record,
    .reap = forward_reap,
    .trim = forward_trim,
    .usage = forward_usage,
    .charge = forward_charge,
    .budget = forward_budget,
    .capabilities = forward_capabilities,
    .find = forward_find,
    .device = forward_device,
    .reusable = forward_reusable,
    .synchronize = forward_synchronize,
};

/* ---- defaults of owners ---- */

static strata_status no_tracking(strata_resource *self, const strata_block *block, CUstream stream,
                                 strata_access access)
{
    (void)block, (void)stream, (void)access;
    return strata_fail(STRATA_ERROR_STREAM_MISUSE, "%s cannot keep the use of a block on several streams correct",
                       self->ops->name);
}
static strata_status nothing_to_reap(strata_resource *self, strata_reap_mode mode, size_t *bytes)
{
    (void)self, (void)mode;
    *bytes = 0;
    return STRATA_SUCCESS;
}
static strata_status nothing_to_trim(strata_resource *self, size_t keep_bytes, size_t *bytes)
{
    (void)self, (void)keep_bytes;
    *bytes = 0;
    return STRATA_SUCCESS;
}
static strata_status charge_as_asked(strata_resource *self, const strata_request *request, size_t *bytes)
{
    (void)self;
    *bytes = request->bytes;
    return STRATA_SUCCESS;
}
static strata_status nothing_reusable(strata_resource *self, const strata_request *request, size_t *bytes,
                                      strata_block_id *of)
{
    (void)self, (void)request;
    *bytes = 0;
    *of = (strata_block_id){0};
    return STRATA_SUCCESS;
}
static strata_status no_budget(strata_resource *self, strata_budget_snapshot *snapshot)
{
    (void)self;
    *snapshot = (strata_budget_snapshot){0};
    return STRATA_ERROR_UNSUPPORTED; /* a query, not a failure: no error is recorded */
}
static strata_status no_find(strata_resource *self, CUdeviceptr address, strata_block *out)
{
    (void)address;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "%s does not find blocks by address", self->ops->name);
}
static int device_of_stack(strata_resource *self)
{
    return self->stack->device->ordinal;
}
static strata_status synchronize_here(strata_resource *self, CUstream stream)
{
    return strata_uses_synchronize_stream(self->stack->device, stream);
}

static const strata_resource_ops absent = {
    .prepare_use = no_tracking,
    .finish_use = no_tracking,
    .record_use = no_tracking,
    .reap = nothing_to_reap,
    .trim = nothing_to_trim,
    .charge = charge_as_asked,
    .budget = no_budget,
    .find = no_find,
    .device = device_of_stack,
    .reusable = nothing_reusable,
    .synchronize = synchronize_here,
};

#define FILL(op)  \
    if (!ops->op) \
    ops->op = from->op

static void fill(strata_resource_ops *ops, const strata_resource_ops *from)
{
    FILL(allocate);
    FILL(deallocate);
    FILL(prepare_use);
    FILL(finish_use);
    FILL(record_use);
    FILL(reap);
    FILL(trim);
    FILL(usage);
    FILL(charge);
    FILL(budget);
    FILL(capabilities);
    FILL(find);
    FILL(device);
    FILL(reusable);
    FILL(synchronize);
}

/* ---- building ---- */

/* The operations table as this version knows it: members that an older one lacks are NULL. */
static strata_resource_ops known_ops(const strata_resource_ops *given)
{
    strata_resource_ops known = {0};
    memcpy(&known, given, given->size < sizeof known ? given->size : sizeof known);
    return known;
}

static strata_status check_owner(strata_resource *resource, size_t position, bool last, int ordinal)
{
    const strata_resource_ops ops = known_ops(resource->ops);
    if (!ops.device)
        return STRATA_SUCCESS;
    if (!last)
        return strata_fail(
            STRATA_ERROR_INVALID_VALUE,
            "layer %zu of the stack (%s) owns its memory, so it must stand last; nothing can come after it",
            position + 1, ops.name);
    int device = ops.device(resource);
    if (device == ordinal)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_WRONG_DEVICE,
                       "layer %zu of the stack (%s) gives memory of device %d, the stack is for device %d",
                       position + 1, ops.name, device, ordinal);
}

/* Whether readable values have a getter, and so on. */
static bool has_its_values(const strata_resource *resource)
{
    const strata_resource_ops ops = known_ops(resource->ops);
    if (ops.value_count && (!ops.values || !ops.get_value))
        return false;
    for (size_t i = 0; i < ops.value_count; i++)
        if (!ops.values[i].name || (ops.values[i].writable && !ops.set_value))
            return false;
    return true;
}

static strata_status check_layer(const strata_resource *resource, size_t position, bool last)
{
    const strata_resource_ops *ops = resource ? resource->ops : NULL;
    const char *problem = NULL;
    const bool whole = ops && ops->size >= offsetof(strata_resource_ops, destroy) + sizeof ops->destroy;
    if (!ops || (whole && (!ops->name || !ops->destroy)))
        problem = "has no ops, name or destroy";
    else if (!whole)
        problem = "has an ops table of the wrong size";
    else if (resource->stack)
        problem = "is part of a stack already";
    else if (ops->block_bytes > LAYER_BYTES_LIMIT)
        problem = "asks for too many bytes in each block";
    else if (known_ops(ops).optional_block_bytes > ops->block_bytes)
        problem = "does without more bytes in each block than it asks for";
    else if (!has_its_values(resource))
        problem = "names values and cannot read or set them";
    else if (last && (!ops->allocate || !ops->deallocate || !ops->usage || !ops->capabilities))
        problem = "stands last and owns no memory: allocate, deallocate, usage or capabilities is missing";
    if (!problem)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "layer %zu of the stack (%s) %s", position + 1,
                       whole && ops->name ? ops->name : "without a name", problem);
}

/* A layer that is in a stack twice would be its own upstream. */
static strata_status check_single(strata_resource *const *resources, size_t position)
{
    for (size_t i = 0; i < position; i++)
        if (resources[i] == resources[position])
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "layer %zu of the stack (%s) stands in it twice",
                               position + 1, resources[i]->ops->name);
    return STRATA_SUCCESS;
}

static char *joined_names(strata_resource *const *resources, size_t count)
{
    size_t length = 1;
    for (size_t i = 0; i < count; i++)
        length += strlen(resources[i]->ops->name) + 2;
    char *text = strata_host_zalloc(length);
    for (size_t i = 0; text && i < count; i++) {
        strcat(text, i ? ", " : "");
        strcat(text, resources[i]->ops->name);
    }
    return text;
}

strata_resource *strata_resource_charging(strata_resource *resource)
{
    while (resource->ops->charge == forward_charge)
        resource = resource->upstream;
    return resource;
}

static void free_stack(strata_stack *stack)
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

/* The position of the lowest layer that is not transparent; it sees blocks as the table has them. */
static uint32_t find_facts(strata_resource *const *resources, size_t count)
{
    uint32_t from = 0;
    for (size_t i = 0; i + 1 < count; i++)
        if (!known_ops(resources[i]->ops).transparent)
            from = (uint32_t)i;
    return from;
}

/* Bytes of a layer in each entry. */
static uint32_t layer_bytes_of(const strata_stack *stack, const strata_resource *resource, size_t position)
{
    const strata_resource_ops ops = known_ops(resource->ops);
    uint32_t bytes = ops.block_bytes - (position >= stack->facts_from ? ops.optional_block_bytes : 0);
    return (bytes + 7) & ~7u;
}

/* An owner at the bottom creates blocks of no layer below; without an internal owner above it, all sinks get its
 * completions. */
static const strata_resource *find_reporter(const strata_stack *stack)
{
    const strata_resource *bottom = stack->layers[stack->count - 1];
    for (size_t i = 0; i < stack->internal_owner_count; i++)
        if (stack->internal_owners[i] != bottom)
            return NULL;
    return bottom;
}

/* Gives the resources to the stack. */
static void connect(strata_stack *stack, strata_resource *const *resources)
{
    uint32_t offset = sizeof(strata_entry);
    for (size_t i = 0; i < stack->count; i++) {
        strata_resource *resource = resources[i];
        const uint32_t bytes = layer_bytes_of(stack, resource, i);
        stack->ops[i] = known_ops(resource->ops);
        fill(&stack->ops[i], i + 1 < stack->count ? &forwarders : &absent);
        resource->ops = &stack->ops[i];
        resource->upstream = i + 1 < stack->count ? resources[i + 1] : NULL;
        resource->stack = stack;
        resource->position = (uint32_t)i;
        resource->block_offset = offset;
        offset += bytes;
        stack->layers[i] = resource;
    }
    for (size_t i = stack->count; i-- > 0;)
        if (stack->ops[i].completed)
            stack->completion_sinks[stack->completion_sink_count++] =
                (strata_completion_sink){stack->ops[i].completed, resources[i], (uint32_t)i};
    for (size_t i = stack->count; i-- > 0;)
        if (stack->ops[i].owns_internally)
            stack->internal_owners[stack->internal_owner_count++] = resources[i];
    stack->reporter = find_reporter(stack);
}

/* Gives them back to their caller. */
static void disconnect(strata_stack *stack, const strata_resource_ops *const *given)
{
    for (size_t i = 0; i < stack->count; i++) {
        strata_resource *resource = stack->layers[i];
        *resource = (strata_resource){.ops = given[i]};
    }
    free_stack(stack);
}

/* Connects, and calls each layer's `begin`. On failure the stack is destroyed. */
static strata_status connect_and_begin(strata_stack *stack, strata_resource *const *resources)
{
    const strata_resource_ops *given[LAYER_LIMIT];
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < stack->count; i++)
        given[i] = resources[i]->ops;
    connect(stack, resources);
    for (size_t i = stack->count; i-- > 0 && status == STRATA_SUCCESS;)
        if (stack->ops[i].begin)
            status = stack->ops[i].begin(resources[i]);
    if (status != STRATA_SUCCESS)
        disconnect(stack, given);
    return status;
}

strata_status strata_stack_build_named(strata_resource *const *resources, size_t count, int ordinal, const char *text,
                                       strata_stack **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a stack is built without a place to put it");
    *out = NULL;
    if (!resources || count == 0 || count > LAYER_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a stack has 1 to %d layers", LAYER_LIMIT);
    strata_device *device;
    strata_status status = strata_device_get(ordinal, &device);
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++) {
        status = check_layer(resources[i], i, i + 1 == count);
        if (status == STRATA_SUCCESS)
            status = check_single(resources, i);
        if (status == STRATA_SUCCESS)
            status = check_owner(resources[i], i, i + 1 == count, ordinal);
    }
    if (status != STRATA_SUCCESS)
        return status;
    strata_stack *stack = strata_host_zalloc(sizeof *stack);
    if (!stack)
        return strata_fail_host_memory("a stack");
    stack->device = device;
    stack->count = count;
    stack->facts_from = find_facts(resources, count);
    uint32_t layer_bytes = 0;
    for (size_t i = 0; i < count; i++)
        layer_bytes += layer_bytes_of(stack, resources[i], i);
    if ((status = strata_table_create(device, layer_bytes, &stack->head.table)) != STRATA_SUCCESS) {
        strata_host_free(stack);
        return status;
    }
    strata_capture_frees_init(&stack->deferred, device);
    stack->text = text ? strata_host_zalloc(strlen(text) + 1) : joined_names(resources, count);
    stack->ops = strata_host_zalloc(count * sizeof *stack->ops);
    stack->layers = strata_host_zalloc(count * sizeof *stack->layers);
    stack->completion_sinks = strata_host_zalloc((count + 1) * sizeof *stack->completion_sinks);
    stack->internal_owners = strata_host_zalloc(count * sizeof *stack->internal_owners);
    if (!stack->text || !stack->ops || !stack->layers || !stack->completion_sinks || !stack->internal_owners) {
        free_stack(stack);
        return strata_fail_host_memory("a stack");
    }
    if (text)
        strcpy(stack->text, text);
    status = connect_and_begin(stack, resources);
    *out = status == STRATA_SUCCESS ? stack : NULL;
    return status;
}

strata_status strata_stack_build(strata_resource *const *resources, size_t count, int ordinal, strata_stack **out)
{
    return strata_stack_build_named(resources, count, ordinal, NULL, out);
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
        top->ops->usage(
            top, &usage); /* Live bytes need no driver call, so they are reported even if the driver's query failed. */
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

/* Destroys the uppermost remaining layer. Layers below may still free blocks and report completions. */
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
    free_stack(stack);
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

/* The position of the layer that owns a block internally; 0: the block is the user's. */
static uint32_t position_of_internal_owner(const strata_stack *stack, strata_block_id id)
{
    for (size_t i = 0; i < stack->internal_owner_count; i++)
        if (stack->internal_owners[i]->ops->owns_internally(stack->internal_owners[i], id))
            return stack->internal_owners[i]->position;
    return 0;
}

/* Reports to the layers from position `from` on and above `below`. */
static void tell_layers(const strata_stack *stack, const strata_completion *completion, uint32_t from, uint32_t below)
{
    for (const strata_completion_sink *each = stack->completion_sinks; each->completed; each++)
        if (each->position >= from && each->position < below)
            each->completed(each->layer, completion);
}

void strata_report_to_some(const strata_resource *owner, const strata_completion *completion)
{
    const strata_stack *stack = owner->stack;
    tell_layers(stack, completion, position_of_internal_owner(stack, completion->id), UINT32_MAX);
}

void strata_report_to_some_above(const strata_resource *layer, const strata_completion *completion)
{
    const strata_stack *stack = layer->stack;
    tell_layers(stack, completion, position_of_internal_owner(stack, completion->id), layer->position);
}

void *strata_block_layer_bytes(const strata_resource *self, strata_block_id id)
{
    strata_entry *entry = self && self->stack ? strata_table_lookup(strata_resource_table(self), id) : NULL;
    return entry ? (char *)entry + self->block_offset : NULL;
}

/* ---- calls through a stack ---- */

/* Checks of a request that every resource needs. Impossible sizes are left to the driver. */
static strata_status check_request(const strata_request *request)
{
    if (request->alignment & (request->alignment - 1))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "an alignment of %zu bytes is not a power of two",
                           request->alignment);
    return STRATA_SUCCESS;
}

/* A layer outside a stack has no upstream, no table and not all operations. */
static __attribute__((cold, noinline)) strata_status refuse_alone(const strata_resource *resource)
{
    const char *name = resource->ops && resource->ops->name ? resource->ops->name : "without a name";
    return strata_fail(
        STRATA_ERROR_INVALID_VALUE,
        "the layer \"%s\" is part of no stack: strata_stack_build makes one of it, whose outermost layer "
        "strata_stack_top gives",
        name);
}

/* The error of a request that is not passed on. */
static __attribute__((cold)) strata_status refuse_request(const strata_resource *resource,
                                                          const strata_request *request, strata_block *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "an allocation without a place for the block");
    *out = (strata_block){0};
    if (!resource || !request)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "an allocation without a resource or a request");
    if (!resource->stack)
        return refuse_alone(resource);
    strata_status status = strata_usable();
    return status == STRATA_SUCCESS ? check_request(request) : status;
}

strata_status strata_resource_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    bool fine = resource && resource->stack && request && out && request->bytes &&
                !(request->alignment & (request->alignment - 1)) && strata_driver_state_now() == STRATA_DRIVER_OPEN;
    if (__builtin_expect(!fine, 0))
        return refuse_request(resource, request, out);
    strata_status status = resource->ops->allocate(resource, request, out);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        *out = (strata_block){0};
    return status;
}

strata_status strata_resource_allocate_ptsz(strata_resource *resource, const strata_request *request, strata_block *out)
{
    if (!request || request->stream)
        return strata_resource_allocate(resource, request, out);
    strata_request meant = *request;
    meant.stream = CU_STREAM_PER_THREAD;
    return strata_resource_allocate(resource, &meant, out);
}

strata_status strata_free_without_driver(const strata_resource *resource, const strata_block *block)
{
    strata_block_id held;
    strata_error_suppress_begin();
    strata_entry_quarantine(strata_resource_table(resource), block, block, &held);
    strata_error_suppress_end(false);
    return STRATA_SUCCESS;
}

strata_status strata_free_from_top(strata_resource *resource, const strata_block *block, CUstream stream)
{
    if (strata_block_is_empty(block))
        return STRATA_SUCCESS;
    if (strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN)
        return strata_free_without_driver(resource, block);
    strata_status status = strata_usable();
    if (status == STRATA_SUCCESS)
        status = resource->ops->deallocate(resource, block, stream);
    return status == STRATA_ERROR_SHUT_DOWN ? strata_free_without_driver(resource, block) : status;
}

strata_status strata_resource_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    if (!resource || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a free without a resource or a block");
    return resource->stack ? strata_free_from_top(resource, block, stream) : refuse_alone(resource);
}

strata_status strata_refuse_use(const strata_resource *resource, const strata_block *block, strata_access access,
                                bool none)
{
    if (!resource || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a use without a resource or a block");
    if (!resource->stack)
        return refuse_alone(resource);
    if ((unsigned)access > STRATA_ACCESS_READ_WRITE || (access == STRATA_ACCESS_NONE && !none))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a use must read, write, or both");
    return strata_usable();
}

strata_status strata_resource_prepare_use(strata_resource *resource, const strata_block *block, CUstream stream,
                                          strata_access access)
{
    if (strata_use_is_fine(resource, block, access, STRATA_ACCESS_READ) && __builtin_expect(resource->stack != NULL, 1))
        return resource->ops->prepare_use(resource, block, stream, access);
    strata_status status = strata_refuse_use(resource, block, access, false);
    return status != STRATA_SUCCESS || strata_block_is_empty(block)
               ? status
               : resource->ops->prepare_use(resource, block, stream, access);
}

strata_status strata_resource_finish_use(strata_resource *resource, const strata_block *block, CUstream stream,
                                         strata_access access)
{
    if (strata_use_is_fine(resource, block, access, STRATA_ACCESS_NONE) && __builtin_expect(resource->stack != NULL, 1))
        return resource->ops->finish_use(resource, block, stream, access);
    strata_status status = strata_refuse_use(resource, block, access, true);
    return status != STRATA_SUCCESS || strata_block_is_empty(block)
               ? status
               : resource->ops->finish_use(resource, block, stream, access);
}

strata_status strata_resource_usage(strata_resource *resource, strata_usage *usage)
{
    if (!resource || !usage)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "usage without a resource or a place for it");
    *usage = (strata_usage){0};
    strata_status status = strata_usable();
    if (status == STRATA_SUCCESS)
        status = resource->stack ? resource->ops->usage(resource, usage) : refuse_alone(resource);
    return status;
}

uint32_t strata_resource_capabilities(strata_resource *resource)
{
    return resource && resource->stack ? resource->ops->capabilities(resource) : 0;
}
