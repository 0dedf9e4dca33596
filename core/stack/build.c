/* Checks the layers, fills in the operations that they leave NULL, lays out their bytes in a block's entry.
 *
 * A layer with branches is followed by those of its first branch, then by those of the next one. All of them have bytes
 * in every entry; a block uses those of the layers that it passed. */
#include "core/stack/build.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/default_operations.h"
#include "core/stack/fuse.h"
#include "core/stack/neighbours.h"
#include "core/stack/regions.h"
#include "core/stack/stack.h"

#include <string.h>

enum { LAYER_LIMIT = 64, LAYER_BYTES_LIMIT = 256 };

/* The layers of all chains. */
typedef struct layer_list {
    strata_resource *layers[LAYER_LIMIT];
    uint32_t ends[LAYER_LIMIT]; /* behind what is below the layer */
    bool is_owner[LAYER_LIMIT]; /* ends its chain and has no branches */
    size_t count;
    bool has_branches;
} layer_list;

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
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "layer %zu of the stack (%s) owns memory and must be the last one", position + 1, ops.name);
    int device = ops.device(resource);
    if (device == ordinal)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_WRONG_DEVICE,
                       "layer %zu of the stack (%s) is for device %d, the stack for device %d", position + 1, ops.name,
                       device, ordinal);
}

/* Values can be read, and set if they are writable. */
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

static bool has_branches(const strata_resource *resource)
{
    return known_ops(resource->ops).branch;
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
        problem = "already belongs to a stack";
    else if (ops->block_bytes > LAYER_BYTES_LIMIT)
        problem = "needs too many bytes per block";
    else if (known_ops(ops).optional_block_bytes > ops->block_bytes)
        problem = "has more optional_block_bytes than block_bytes";
    else if (!has_its_values(resource))
        problem = "has values but no functions that read and set them";
    else if (!last && has_branches(resource))
        problem = "stands over branches and must be the last one";
    else if (last && (!ops->allocate || !ops->deallocate || !ops->usage || !ops->capabilities))
        problem = "is the last one and owns no memory: allocate, deallocate, usage or capabilities is missing";
    if (!problem)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "layer %zu of the stack (%s) %s", position + 1,
                       whole && ops->name ? ops->name : "unnamed", problem);
}

/* A layer that is in a stack twice would be its own upstream. */
static strata_status check_single(strata_resource *const *resources, size_t position)
{
    for (size_t i = 0; i < position; i++)
        if (resources[i] == resources[position])
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "layer %zu of the stack (%s) appears twice", position + 1,
                               resources[i]->ops->name);
    return STRATA_SUCCESS;
}

static strata_status add_chain(layer_list *list, strata_resource *const *resources, size_t count, int ordinal);

static strata_status add_branches(layer_list *list, strata_resource *resource, int ordinal)
{
    const strata_resource_ops ops = known_ops(resource->ops);
    strata_status status = STRATA_SUCCESS;
    strata_resource *const *layers;
    size_t count;
    list->has_branches = true;
    size_t which = 0;
    for (; status == STRATA_SUCCESS && (layers = ops.branch(resource, which, &count)); which++)
        status = add_chain(list, layers, count, ordinal);
    return which ? status : strata_fail(STRATA_ERROR_INVALID_VALUE, "%s has no branches", ops.name);
}

static strata_status add_layer(layer_list *list, strata_resource *resource, bool last, int ordinal)
{
    const size_t position = list->count;
    if (position == LAYER_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a stack has at most %d layers, those of branches included",
                           LAYER_LIMIT);
    list->layers[position] = resource;
    strata_status status = check_layer(resource, position, last);
    if (status == STRATA_SUCCESS)
        status = check_single(list->layers, position);
    if (status == STRATA_SUCCESS)
        status = check_owner(resource, position, last, ordinal);
    if (status != STRATA_SUCCESS)
        return status;
    list->count++;
    list->is_owner[position] = last && !has_branches(resource);
    return has_branches(resource) ? add_branches(list, resource, ordinal) : STRATA_SUCCESS;
}

/* Each layer adds one, so the recursion ends. */
static strata_status add_chain(layer_list *list, strata_resource *const *resources, size_t count, int ordinal)
{
    const size_t first = list->count;
    strata_status status = STRATA_SUCCESS;
    if (!count)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a branch of %s has no layers",
                           list->layers[first - 1]->ops->name);
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status = add_layer(list, resources[i], i + 1 == count, ordinal);
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        list->ends[first + i] = (uint32_t)list->count;
    return status;
}

/* ---- connecting ---- */

static void append_chain(char *text, const layer_list *list, size_t first)
{
    for (size_t i = first;; i++) {
        strcat(text, i == first ? "" : ", ");
        strcat(text, list->layers[i]->ops->name);
        if (list->is_owner[i])
            return;
        if (!has_branches(list->layers[i]))
            continue;
        for (size_t branch = i + 1; branch < list->ends[i]; branch = list->ends[branch]) {
            strcat(text, branch == i + 1 ? "(" : " | ");
            append_chain(text, list, branch);
        }
        strcat(text, ")");
        return;
    }
}

static char *joined_names(const layer_list *list)
{
    size_t length = 1;
    for (size_t i = 0; i < list->count; i++)
        length += strlen(list->layers[i]->ops->name) + strlen(" | )");
    char *text = strata_host_zalloc(length);
    if (text)
        append_chain(text, list, 0);
    return text;
}

/* The position of the last layer that is not transparent: from there on, layers see blocks as the table has them. With
 * branches some above it do, too. */
static uint32_t find_facts(const layer_list *list)
{
    uint32_t from = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!list->is_owner[i] && !known_ops(list->layers[i]->ops).transparent)
            from = (uint32_t)i;
    return from;
}

static uint32_t layer_bytes_of(const strata_stack *stack, const strata_resource *resource, size_t position)
{
    const strata_resource_ops ops = known_ops(resource->ops);
    uint32_t bytes = ops.block_bytes - (position >= stack->facts_from ? ops.optional_block_bytes : 0);
    return (bytes + 7) & ~7u;
}

/* The owner at the bottom: unless a layer above owns blocks internally, or there are several owners, all sinks get its
 * completions. */
static const strata_resource *find_reporter(const strata_stack *stack, const layer_list *list)
{
    if (list->has_branches)
        return NULL;
    const strata_resource *bottom = stack->layers[stack->count - 1];
    for (size_t i = 0; i < stack->internal_owner_count; i++)
        if (stack->internal_owners[i] != bottom)
            return NULL;
    return bottom;
}

_Atomic(strata_fuse *) strata_fuse_operations;

static void connect(strata_stack *stack, const layer_list *list)
{
    uint32_t offset = sizeof(strata_entry);
    for (size_t i = 0; i < stack->count; i++) {
        strata_resource *resource = list->layers[i];
        const uint32_t bytes = layer_bytes_of(stack, resource, i);
        stack->ops[i] = known_ops(resource->ops);
        stack->memory_of_program |= stack->ops[i].memory_of_program;
        strata_fill_operations(&stack->ops[i], list->is_owner[i]);
        resource->ops = &stack->ops[i];
        resource->upstream = list->is_owner[i] ? NULL : list->layers[i + 1];
        resource->stack = stack;
        resource->position = (uint32_t)i;
        resource->block_offset = offset;
        offset += bytes;
        stack->layers[i] = resource;
        stack->ends[i] = list->ends[i];
    }
    for (size_t i = stack->count; i-- > 0;)
        if (stack->ops[i].completed)
            stack->completion_sinks[stack->completion_sink_count++] =
                (strata_completion_sink){stack->ops[i].completed, stack->layers[i], (uint32_t)i};
    for (size_t i = stack->count; i-- > 0;)
        if (stack->ops[i].owns_internally)
            stack->internal_owners[stack->internal_owner_count++] = stack->layers[i];
    strata_fill_top_allocate(stack->layers[0], &stack->ops[0]);
    strata_fuse *fuse = atomic_load_explicit(&strata_fuse_operations, memory_order_acquire);
    if (fuse)
        fuse(stack->layers[0], &stack->ops[0]);
    stack->reporter = find_reporter(stack, list);
    strata_stack_announce_regions(stack);
}

static void disconnect(strata_stack *stack, const strata_resource_ops *const *given)
{
    for (size_t i = 0; i < stack->count; i++) {
        strata_resource *resource = stack->layers[i];
        *resource = (strata_resource){.ops = given[i]};
    }
    strata_stack_free(stack);
}

/* On failure the stack is destroyed. */
static strata_status connect_and_begin(strata_stack *stack, const layer_list *list)
{
    const strata_resource_ops *given[LAYER_LIMIT];
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < stack->count; i++)
        given[i] = list->layers[i]->ops;
    connect(stack, list);
    for (size_t i = stack->count; i-- > 0 && status == STRATA_SUCCESS;)
        if (stack->ops[i].begin)
            status = stack->ops[i].begin(list->layers[i]);
    if (status != STRATA_SUCCESS)
        disconnect(stack, given);
    return status;
}

/* False without host memory. */
static bool make_parts(strata_stack *stack, const layer_list *list, const char *text)
{
    const size_t count = stack->count;
    stack->text = text ? strata_host_zalloc(strlen(text) + 1) : joined_names(list);
    stack->ops = strata_host_zalloc(count * sizeof *stack->ops);
    stack->layers = strata_host_zalloc(count * sizeof *stack->layers);
    stack->ends = strata_host_zalloc(count * sizeof *stack->ends);
    stack->completion_sinks = strata_host_zalloc((count + 1) * sizeof *stack->completion_sinks);
    stack->internal_owners = strata_host_zalloc(count * sizeof *stack->internal_owners);
    if (text && stack->text)
        strcpy(stack->text, text);
    return stack->text && stack->ops && stack->layers && stack->ends && stack->completion_sinks &&
           stack->internal_owners;
}

/* Makes a stack for these layers, which are not yet connected. */
static strata_status make_stack(strata_device *device, const layer_list *list, const char *text, strata_stack **out)
{
    strata_stack *stack = strata_host_zalloc(sizeof *stack);
    if (!stack)
        return strata_fail_host_memory("a stack");
    stack->device = device;
    stack->count = list->count;
    stack->facts_from = find_facts(list);
    uint32_t layer_bytes = 0;
    for (size_t i = 0; i < stack->count; i++)
        layer_bytes += layer_bytes_of(stack, list->layers[i], i);
    const strata_status status = strata_table_create(device, layer_bytes, &stack->head.table);
    if (status != STRATA_SUCCESS) {
        strata_host_free(stack);
        return status;
    }
    strata_capture_frees_init(&stack->capture_frees, device);
    if (!make_parts(stack, list, text)) {
        strata_stack_free(stack);
        return strata_fail_host_memory("a stack");
    }
    *out = stack;
    return STRATA_SUCCESS;
}

strata_status strata_stack_build_named(strata_resource *const *resources, size_t count, int ordinal, const char *text,
                                       strata_stack **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_stack_build: out is NULL");
    *out = NULL;
    if (!resources || count == 0 || count > LAYER_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a stack needs 1 to %d layers", LAYER_LIMIT);
    strata_device *device;
    layer_list list = {.count = 0};
    strata_status status = strata_device_get(ordinal, &device);
    if (status == STRATA_SUCCESS)
        status = add_chain(&list, resources, count, ordinal);
    if (status != STRATA_SUCCESS)
        return status;
    strata_neighbours_settle_lost(ordinal);
    strata_stack *stack = NULL;
    status = make_stack(device, &list, text, &stack);
    if (status != STRATA_SUCCESS)
        return status;
    status = connect_and_begin(stack, &list);
    for (size_t i = list.count; i-- > 0 && status == STRATA_SUCCESS;)
        if (stack->ops[i].built)
            stack->ops[i].built(stack->layers[i]);
    if (status == STRATA_SUCCESS)
        strata_neighbours_join(stack);
    *out = status == STRATA_SUCCESS ? stack : NULL;
    return status;
}

strata_status strata_stack_build(strata_resource *const *resources, size_t count, int ordinal, strata_stack **out)
{
    return strata_stack_build_named(resources, count, ordinal, NULL, out);
}
