/* Calls of a stack's users. Arguments, fork and the driver's shutdown are checked here, and not in the layers. */
#include "core/stack/calls.h"

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/stack/own_stream_free.h"

/* Impossible sizes are left to the driver. */
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
    bool valid = resource && resource->stack && request && out && request->bytes &&
                 !(request->alignment & (request->alignment - 1)) && strata_driver_state_now() == STRATA_DRIVER_OPEN;
    if (__builtin_expect(!valid, 0))
        return refuse_request(resource, request, out);
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
    strata_error_suppress_begin();
    strata_entry_quarantine(strata_resource_table(resource), block, block, &held);
    strata_error_suppress_end(false);
    return STRATA_SUCCESS;
}

static inline __attribute__((always_inline)) strata_status
free_from_top(strata_resource *top, const strata_block *block, CUstream stream, bool own)
{
    if (strata_block_is_empty(block))
        return STRATA_SUCCESS;
    if (strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN)
        return strata_free_without_driver(top, block);
    strata_status status = strata_usable();
    if (status == STRATA_SUCCESS)
        status = own ? strata_free_on_own_stream(strata_resource_table(top), top, block, strata_thread_self())
                     : top->ops->deallocate(top, block, stream);
    return status == STRATA_ERROR_SHUT_DOWN ? strata_free_without_driver(top, block) : status;
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
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a free without a resource or a block");
    return resource->stack ? strata_free_from_top(resource, block, stream) : refuse_alone(resource);
}

static strata_status check_use(const strata_resource *resource, const strata_block *block, strata_access access,
                               strata_access least)
{
    if (!resource || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a use without a resource or a block");
    if (!resource->stack)
        return refuse_alone(resource);
    if ((unsigned)access > STRATA_ACCESS_READ_WRITE || (unsigned)access < (unsigned)least)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a use must read, write, or both");
    return strata_usable();
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
