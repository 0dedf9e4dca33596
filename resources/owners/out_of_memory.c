/* Out-of-memory messages. */
#include "resources/owners/out_of_memory.h"

#include "core/base/error.h"
#include "core/base/size_text.h"
#include "core/stack/neighbours.h"

#include <stdio.h>

enum { ADVICE_SIZE = 224 };

/* Freeing cannot help a request that exceeds the limit or the device. */
static void advise(char text[ADVICE_SIZE], const strata_request *request, size_t limit, size_t device_total,
                   size_t step)
{
    const size_t most = step ? limit / step * step : limit;
    if (request->bytes > device_total)
        snprintf(text, ADVICE_SIZE, "The request exceeds the device's memory; request less or use several devices");
    else if (limit && request->bytes > limit)
        snprintf(text, ADVICE_SIZE, "The request alone exceeds the limit; raise the limit or request less");
    else if (limit && request->bytes > most)
        snprintf(
            text, ADVICE_SIZE,
            "In steps of %s, %s fit within the limit, less than the request alone; raise the limit or request less",
            strata_size_text(step).text, strata_size_text(most).text);
    else if (limit && step && request->alignment > step && request->bytes + request->alignment > most)
        snprintf(text, ADVICE_SIZE,
                 "With its alignment of %s the request may exceed the limit; raise the limit or request less",
                 strata_size_text(request->alignment).text);
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
        return strata_fail_driver(result, call, "%s: allocating %s (tag \"%s\")", owner->ops->name,
                                  strata_size_text(request->bytes).text, strata_tag_name(request->tag));
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
    char beside[STRATA_NEIGHBOURS_TEXT], advice[ADVICE_SIZE];
    strata_neighbours_describe(device, owner->stack, beside);
    const bool knows_largest = usage.largest_free || step || !usage.reserved_free;
    advise(advice, request, usage.limit, device->info.total_bytes, step);
    return strata_error_raise(
        error,
        "%s: out of memory: request of %s (tag \"%.40s\") on device %d; limit %s, live %s in %zu block%s, retired %s, "
        "reserved but free %s, largest free block %s, free on the device %s of %s%s. %s",
        owner->ops->name, strata_size_text(request->bytes).text, strata_tag_name(request->tag), device->ordinal,
        usage.limit ? strata_size_text(usage.limit).text : "none", strata_size_text(usage.live_bytes).text,
        usage.live_blocks, usage.live_blocks == 1 ? "" : "s", strata_size_text(usage.retired_bytes).text,
        strata_size_text(usage.reserved_free).text,
        knows_largest ? strata_size_text(usage.largest_free).text : "unknown to the driver",
        strata_size_text(device_free).text, strata_size_text(device->info.total_bytes).text, beside, advice);
}

strata_status strata_check_alignment(const strata_resource *owner, const strata_request *request, size_t most)
{
    if (request->alignment <= most)
        return STRATA_SUCCESS;
    return strata_fail(
        STRATA_ERROR_UNSUPPORTED,
        "%s supports alignments up to %zu bytes, not %zu; the layer aligned supports more, as in \"aligned, %s\"",
        owner->ops->name, most, request->alignment, owner->ops->name);
}
