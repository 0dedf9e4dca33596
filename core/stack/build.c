/* Building stacks: checks the layers, fills in the operations that they leave NULL, and lays out their bytes in each
 * block's entry. */
#include "core/stack/build.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/default_operations.h"
#include "core/stack/stack.h"

#include <string.h>

enum { LAYER_LIMIT = 64, LAYER_BYTES_LIMIT = 256 };

/* ---- checks ---- */

/* Members that an older table lacks are NULL. */
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

/* Whether values can be read, and set if they are writable. */
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

/* ---- connecting ---- */

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

/* The position of the lowest layer that is not transparent: from there on, layers see blocks as the table has them. */
static uint32_t find_facts(strata_resource *const *resources, size_t count)
{
    uint32_t from = 0;
    for (size_t i = 0; i + 1 < count; i++)
        if (!known_ops(resources[i]->ops).transparent)
            from = (uint32_t)i;
    return from;
}

static uint32_t layer_bytes_of(const strata_stack *stack, const strata_resource *resource, size_t position)
{
    const strata_resource_ops ops = known_ops(resource->ops);
    uint32_t bytes = ops.block_bytes - (position >= stack->facts_from ? ops.optional_block_bytes : 0);
    return (bytes + 7) & ~7u;
}

/* The owner at the bottom has no layer below: unless a layer above owns blocks internally, all sinks get its
 * completions. */
static const strata_resource *find_reporter(const strata_stack *stack)
{
    const strata_resource *bottom = stack->layers[stack->count - 1];
    for (size_t i = 0; i < stack->internal_owner_count; i++)
        if (stack->internal_owners[i] != bottom)
            return NULL;
    return bottom;
}

static void connect(strata_stack *stack, strata_resource *const *resources)
{
    uint32_t offset = sizeof(strata_entry);
    for (size_t i = 0; i < stack->count; i++) {
        strata_resource *resource = resources[i];
        const uint32_t bytes = layer_bytes_of(stack, resource, i);
        stack->ops[i] = known_ops(resource->ops);
        strata_fill_operations(&stack->ops[i], i + 1 == stack->count);
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

/* Gives the resources back to their caller. */
static void disconnect(strata_stack *stack, const strata_resource_ops *const *given)
{
    for (size_t i = 0; i < stack->count; i++) {
        strata_resource *resource = stack->layers[i];
        *resource = (strata_resource){.ops = given[i]};
    }
    strata_stack_free(stack);
}

/* On failure the stack is destroyed. */
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
        strata_stack_free(stack);
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
