/* Usage, values, and the error of a refused request. */
#include "core/base/error.h"
#include "core/base/size_text.h"
#include "resources/pinned/internal.h"

enum { VALUE_SLABS, VALUE_SLABS_MADE, VALUE_CACHED_BYTES, VALUE_RETIRED_BYTES, VALUE_POLLS, VALUE_ARENA };

/* The device's free memory is left out: host memory is short. */
strata_status pinned_refuse(strata_resource *resource, const strata_request *request, CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return strata_fail_driver(result, "cuMemHostAlloc", "pinned: allocating %s (tag \"%s\")",
                                  strata_size_text(request->bytes).text, strata_tag_name(request->tag));
    strata_usage usage;
    resource->ops->usage(resource, &usage);
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_MEMORY);
    error->driver_code = result;
    error->driver_name = strata_driver_error_name(result);
    error->driver_call = "cuMemHostAlloc";
    error->requested = request->bytes;
    error->in_use = usage.bytes_outstanding;
    error->tag = request->tag;
    return strata_error_raise(error,
                              "pinned: out of page-locked host memory: request of %s (tag \"%.100s\"); live %s in %zu "
                              "block%s, retired %s. Free memory, or request less",
                              strata_size_text(request->bytes).text, strata_tag_name(request->tag),
                              strata_size_text(usage.live_bytes).text, usage.live_blocks,
                              usage.live_blocks == 1 ? "" : "s", strata_size_text(usage.retired_bytes).text);
}

strata_status pinned_usage(strata_resource *resource, strata_usage *usage)
{
    pinned *self = (pinned *)resource;
    const int64_t ended = strata_counters_sum(&self->counters, PINNED_ENDED_BYTES);
    const int64_t freed = strata_counters_sum(&self->counters, PINNED_FREED_BYTES);
    const int64_t freed_blocks = strata_counters_sum(&self->counters, PINNED_FREED_BLOCKS);
    const size_t live = strata_counters_between(freed, strata_counters_sum(&self->counters, PINNED_ALLOCATED_BYTES));
    const size_t retired = strata_counters_between(ended, freed);
    const size_t reserved = atomic_load_explicit(&self->slabs.bytes, memory_order_relaxed);
    *usage = (strata_usage){
        .live_bytes = live,
        .retired_bytes = retired,
        .bytes_outstanding = live + retired,
        .live_blocks =
            strata_counters_between(freed_blocks, strata_counters_sum(&self->counters, PINNED_ALLOCATED_BLOCKS)),
        .reserved_bytes = reserved,
        .reserved_peak = atomic_load_explicit(&self->slabs.peak, memory_order_relaxed),
        .reserved_free = reserved > live + retired ? reserved - live - retired : 0,
    };
    return STRATA_SUCCESS;
}

const strata_value pinned_values[PINNED_VALUES] = {
    [VALUE_SLABS] = {"slabs", STRATA_VALUE_COUNT, false, "slabs of page-locked memory"},
    [VALUE_SLABS_MADE] = {"slabs_made", STRATA_VALUE_COUNT, false, "slabs taken from the driver so far"},
    [VALUE_CACHED_BYTES] = {"cached_bytes", STRATA_VALUE_BYTES, false, "free blocks that are kept whole"},
    [VALUE_RETIRED_BYTES] = {"retired_bytes", STRATA_VALUE_BYTES, false, "freed blocks not known to be complete"},
    [VALUE_POLLS] = {"polls", STRATA_VALUE_COUNT, false, "streams asked so far, on behalf of freed blocks"},
    [VALUE_ARENA] = {"arena", STRATA_VALUE_SWITCH, false, "1: jemalloc cuts the slabs"},
};

strata_status pinned_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    pinned *self = (pinned *)resource;
    strata_usage usage;
    pinned_usage(resource, &usage);
    const uint64_t all[PINNED_VALUES] = {
        [VALUE_SLABS] = atomic_load_explicit(&self->slabs.count, memory_order_relaxed),
        [VALUE_SLABS_MADE] = atomic_load_explicit(&self->slabs.made, memory_order_relaxed),
        [VALUE_CACHED_BYTES] = pinned_lanes_cached(self),
        [VALUE_RETIRED_BYTES] = usage.retired_bytes,
        [VALUE_POLLS] = atomic_load_explicit(&self->polls, memory_order_relaxed),
        [VALUE_ARENA] = self->arena != NULL,
    };
    *value = all[which];
    return STRATA_SUCCESS;
}
