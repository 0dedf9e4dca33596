/* Calls of a stack's users. Arguments, fork and the driver's shutdown are checked here, not in the layers. */
#include "core/stack/calls.h"

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/stack/own_stream_free.h"
#include "core/streams/device_wait.h"

/* Impossible sizes are left to the driver. */
static strata_status check_request(const strata_request *request)
{
    if (request->alignment & (request->alignment - 1))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "alignment of %zu bytes is not a power of two",
                           request->alignment);
    return STRATA_SUCCESS;
}

/* A layer outside a stack has no upstream, no table and not all operations. */
static __attribute__((cold, noinline)) strata_status refuse_alone(const strata_resource *resource)
{
    const char *name = resource->ops && resource->ops->name ? resource->ops->name : "unnamed";
    return strata_fail(
        STRATA_ERROR_INVALID_VALUE,
        "layer \"%s\" belongs to no stack: build one with strata_stack_build, and use strata_stack_top of it", name);
}

/* For requests of no bytes, invalid requests, and any request while the driver is closed or after a reset. */
static __attribute__((cold)) strata_status allocate_slow(strata_resource *resource, const strata_request *request,
                                                         strata_block *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_resource_allocate: out is NULL");
    *out = (strata_block){0};
    if (!resource || !request)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_resource_allocate: resource or request is NULL");
    if (!resource->stack)
        return refuse_alone(resource);
    strata_status status = strata_check_stack(resource->stack);
    if (status == STRATA_SUCCESS)
        status = check_request(request);
    return status == STRATA_SUCCESS && request->bytes ? strata_allocate_from_top(resource, request, out) : status;
}

strata_status strata_resource_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    bool valid = resource && resource->stack && request && out && request->bytes &&
                 !(request->alignment & (request->alignment - 1)) && strata_driver_state_now() == STRATA_DRIVER_OPEN;
    if (__builtin_expect(!valid, 0))
        return allocate_slow(resource, request, out);
    return strata_allocate_from_top(resource, request, out);
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
    strata_entry *entry = strata_table_lookup(strata_resource_table(resource), block->id);
    strata_error_suppress_begin();
    if (entry)
        strata_entry_unkeep(entry, block->id.generation);
    strata_entry_quarantine(strata_resource_table(resource), block, block, &held);
    strata_error_suppress_end(false);
    return STRATA_SUCCESS;
}

static strata_status free_on_own_stream(strata_resource *top, const strata_block *block)
{
    strata_thread *thread = strata_thread_self();
    strata_inflight_free_begin(thread);
    const strata_status status = strata_free_on_own_stream_slow(top, block);
    strata_inflight_free_end(thread);
    return status;
}

/* Waits for all work if the free was ordered by a stream of another device that was reset: that order is lost. */
strata_status strata_free_after_reset(strata_resource *top, const strata_block *block)
{
    strata_device *device = top->stack->device;
    if (!strata_device_is_usable_now(device))
        return strata_free_without_driver(top, block);
    strata_status status = strata_device_wait(device);
    if (status == STRATA_SUCCESS)
        status = top->ops->deallocate(top, block, CU_STREAM_LEGACY);
    return strata_ends_without_driver(status) ? strata_free_without_driver(top, block) : status;
}

static inline __attribute__((always_inline)) strata_status
free_from_top(strata_resource *top, const strata_block *block, CUstream stream, bool own)
{
    if (strata_block_is_empty(block))
        return STRATA_SUCCESS;
    if (strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN || strata_device_is_lost(top->stack->device))
        return strata_free_without_driver(top, block);
    strata_status status = strata_check_driver();
    if (status == STRATA_SUCCESS)
        status = own ? free_on_own_stream(top, block) : top->ops->deallocate(top, block, stream);
    return strata_ends_without_driver(status) ? strata_free_after_reset(top, block) : status;
}

strata_status strata_free_from_top(strata_resource *top, const strata_block *block, CUstream stream)
{
    return free_from_top(top, block, stream, false);
}

strata_status strata_free_from_top_on_own_stream(strata_resource *top, const strata_block *block)
{
    return free_from_top(top, block, NULL, true);
}

strata_status strata_resource_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    if (!resource || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_resource_deallocate: resource or block is NULL");
    return resource->stack ? strata_free_from_top(resource, block, stream) : refuse_alone(resource);
}

static bool is_reported(strata_resource *top, CUdeviceptr address, bool freed)
{
    for (strata_resource *layer = top; layer; layer = strata_resource_next_below(top, layer))
        if (layer->ops->address_refused && layer->ops->address_refused(layer, address, freed))
            return true;
    return false;
}

void strata_tell_refused_address(strata_resource *top, CUdeviceptr address)
{
    if (!is_reported(top, address, true))
        is_reported(top, address, false);
}

bool strata_tell_freed_address(strata_resource *top, CUdeviceptr address)
{
    return is_reported(top, address, true);
}

bool strata_resource_hears_graphs(strata_resource *top)
{
    strata_resource *layer = top;
    while (layer && !layer->ops->graph_event)
        layer = strata_resource_next_below(top, layer);
    return layer != NULL;
}

void strata_tell_graph_event(strata_resource *top, const strata_graph_event *event)
{
    for (strata_resource *layer = top; layer; layer = strata_resource_next_below(top, layer))
        if (layer->ops->graph_event)
            layer->ops->graph_event(layer, event);
}

void strata_request_refused(strata_resource *layer, const strata_request *request, strata_status status)
{
    for (strata_resource *below = layer->upstream; below; below = below->upstream)
        if (below->ops->request_refused)
            below->ops->request_refused(below, request, status);
}

/* Without host memory for the thread's state the call counts as the program's. */
static strata_thread *internal_begin(void)
{
    strata_thread *thread = strata_thread_self();
    if (thread)
        thread->internal_calls++;
    return thread;
}

static strata_status internal_end(strata_thread *thread, strata_status status)
{
    if (thread)
        thread->internal_calls--;
    return status;
}

strata_status strata_reap_internally(strata_resource *below, strata_reap_mode mode, size_t *bytes)
{
    strata_thread *thread = internal_begin();
    return internal_end(thread, below->ops->reap(below, mode, bytes));
}

strata_status strata_trim_internally(strata_resource *below, size_t keep_bytes, size_t *bytes)
{
    strata_thread *thread = internal_begin();
    return internal_end(thread, below->ops->trim(below, keep_bytes, bytes));
}

static strata_status check_use(const strata_resource *resource, const strata_block *block, strata_access access,
                               strata_access least)
{
    if (!resource || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "use of a block: resource or block is NULL");
    if (!resource->stack)
        return refuse_alone(resource);
    if ((unsigned)access > STRATA_ACCESS_READ_WRITE || (unsigned)access < (unsigned)least)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "invalid access: expected read, write or both");
    return strata_check_stack(resource->stack);
}

strata_status strata_resource_prepare_use(strata_resource *resource, const strata_block *block, CUstream stream,
                                          strata_access access)
{
    if (__builtin_expect(resource && resource->stack, 1) && strata_use_is_valid(block, access, STRATA_ACCESS_READ))
        return resource->ops->prepare_use(resource, block, stream, access);
    const strata_status status = check_use(resource, block, access, STRATA_ACCESS_READ);
    return status != STRATA_SUCCESS || strata_block_is_empty(block)
               ? status
               : resource->ops->prepare_use(resource, block, stream, access);
}

strata_status strata_resource_finish_use(strata_resource *resource, const strata_block *block, CUstream stream,
                                         strata_access access)
{
    if (__builtin_expect(resource && resource->stack, 1) && strata_use_is_valid(block, access, STRATA_ACCESS_NONE))
        return resource->ops->finish_use(resource, block, stream, access);
    const strata_status status = check_use(resource, block, access, STRATA_ACCESS_NONE);
    return status != STRATA_SUCCESS || strata_block_is_empty(block)
               ? status
               : resource->ops->finish_use(resource, block, stream, access);
}

strata_status strata_resource_usage(strata_resource *resource, strata_usage *usage)
{
    if (!resource || !usage)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_resource_usage: resource or usage is NULL");
    *usage = (strata_usage){0};
    strata_status status = resource->stack ? strata_check_stack(resource->stack) : strata_check_driver();
    if (status == STRATA_SUCCESS)
        status = resource->stack ? resource->ops->usage(resource, usage) : refuse_alone(resource);
    return status;
}

uint32_t strata_resource_capabilities(strata_resource *resource)
{
    return resource && resource->stack ? resource->ops->capabilities(resource) : 0;
}
