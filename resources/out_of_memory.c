/* Saying why there is no memory: what was asked for, what is in use, what is held and free, and what the device has. */
#include "resources/out_of_memory.h"

#include "core/error.h"

strata_status strata_fail_allocation(strata_resource *owner, const strata_request *request, CUresult result,
                                     const char *call)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return strata_fail_driver(result, call, "%s: allocating %zu bytes (tag \"%s\")", owner->ops->name,
                                  request->bytes, strata_tag_name(request->tag));
    strata_usage usage = {0};
    owner->ops->usage(owner, &usage);
    size_t device_free = strata_device_free_bytes(owner->stack->device);
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_MEMORY);
    error->driver_code = result;
    error->driver_name = strata_driver_error_name(result);
    error->driver_call = call;
    error->requested = request->bytes;
    error->in_use = usage.bytes_outstanding;
    error->limit = usage.limit;
    error->reserved_free = usage.reserved_free;
    error->largest_free = usage.largest_free;
    error->device_free = device_free;
    error->tag = request->tag;
    size_t room = usage.limit > usage.reserved_bytes ? usage.limit - usage.reserved_bytes : 0;
    error->remaining = usage.reserved_free + (usage.limit && room < device_free ? room : device_free);
    return strata_error_raise(error,
                              "%s: no memory for %zu bytes (tag \"%s\") on device %d: limit %zu, live %zu in %zu "
                              "blocks, retired %zu, reserved but "
                              "free %zu, largest free block %zu (0: the driver does not say), free on the device %zu. "
                              "Free or trim memory, wait for "
                              "pending frees, or raise the limit",
                              owner->ops->name, request->bytes, strata_tag_name(request->tag),
                              owner->stack->device->ordinal, usage.limit, usage.live_bytes, usage.live_blocks,
                              usage.retired_bytes, usage.reserved_free, usage.largest_free, device_free);
}

strata_status strata_check_alignment(const strata_resource *owner, const strata_request *request, size_t most)
{
    if (request->alignment <= most)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "%s aligns blocks to %zu bytes; %zu were asked for", owner->ops->name,
                       most, request->alignment);
}
