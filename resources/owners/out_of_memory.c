/* Out-of-memory messages: what was requested, in use, reserved and free, and free on the device. */
#include "resources/owners/out_of_memory.h"

#include "core/base/error.h"

#include <stdio.h>

enum { TEXT_SIZE = 24, ADVICE_SIZE = 240 };

static void write_bytes(char text[TEXT_SIZE], size_t bytes, const char *for_zero)
{
    if (bytes)
        snprintf(text, TEXT_SIZE, "%zu", bytes);
    else
        snprintf(text, TEXT_SIZE, "%s", for_zero);
}

/* Advice. Freeing cannot help a request that exceeds the limit or the device. */
static void advise(char text[ADVICE_SIZE], const strata_request *request, size_t limit, size_t device_total,
                   size_t step)
{
    const size_t most = step ? limit / step * step : limit;
    if (request->bytes > device_total)
        snprintf(text, ADVICE_SIZE, "The device has less in all: ask for less, or use several devices");
    else if (limit && request->bytes > limit)
        snprintf(text, ADVICE_SIZE, "The request alone is beyond the limit: raise it, or ask for less");
    else if (limit && request->bytes > most)
        snprintf(text, ADVICE_SIZE,
                 "Memory comes in steps of %zu bytes, of which %zu are within the limit, and the request alone is "
                 "beyond those: raise the limit, or ask for less",
                 step, most);
    else if (limit && step && request->alignment > step && request->bytes + request->alignment > most)
        snprintf(text, ADVICE_SIZE,
                 "With its alignment of %zu bytes the request may need more than the limit: raise it, or ask for less",
                 request->alignment);
    else
        snprintf(text, ADVICE_SIZE, "Free or trim memory, or wait for pending frees%s",
                 limit ? ", or raise the limit" : "");
}

strata_status strata_fail_allocation(strata_resource *owner, const strata_request *request, CUresult result,
                                     const char *call)
{
    return strata_fail_allocation_in_steps(owner, request, result, call, 0);
}

strata_status strata_fail_allocation_in_steps(strata_resource *owner, const strata_request *request, CUresult result,
                                              const char *call, size_t step)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return strata_fail_driver(result, call, "%s: allocating %zu bytes (tag \"%s\")", owner->ops->name,
                                  request->bytes, strata_tag_name(request->tag));
    strata_usage usage = {0};
    strata_error_suppress_begin();
    owner->ops->usage(owner, &usage);
    strata_error_suppress_end(false);
    strata_device *device = owner->stack->device;
    size_t device_free = strata_device_free_bytes(device);
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
    char limit[TEXT_SIZE], largest[TEXT_SIZE], advice[ADVICE_SIZE];
    write_bytes(limit, usage.limit, "none");
    write_bytes(largest, usage.largest_free, step || !usage.reserved_free ? "0" : "unknown to the driver");
    advise(advice, request, usage.limit, device->info.total_bytes, step);
    return strata_error_raise(
        error,
        "%s: no memory for %zu bytes (tag \"%.100s\") on device %d: limit %s, live %zu in %zu block%s, retired %zu, "
        "reserved but free %zu, largest free block %s, free on the device %zu of %zu. %s",
        owner->ops->name, request->bytes, strata_tag_name(request->tag), device->ordinal, limit, usage.live_bytes,
        usage.live_blocks, usage.live_blocks == 1 ? "" : "s", usage.retired_bytes, usage.reserved_free, largest,
        device_free, device->info.total_bytes, advice);
}

strata_status strata_check_alignment(const strata_resource *owner, const strata_request *request, size_t most)
{
    if (request->alignment <= most)
        return STRATA_SUCCESS;
    return strata_fail(
        STRATA_ERROR_UNSUPPORTED,
        "%s aligns blocks to %zu bytes; %zu were asked for: the layer aligned serves that above it, as in "
        "\"aligned, %s\"",
        owner->ops->name, most, request->alignment, owner->ops->name);
}
