/* Usage, values, and a report of the bins. */
#include "resources/binning/internal.h"

enum {
    VALUE_LIVE_BLOCKS,
    VALUE_LIVE_BYTES,
    VALUE_RETIRED_BYTES,
    VALUE_FREE_BYTES,
    VALUE_CHUNKS,
    VALUE_CHUNK_BYTES,
    VALUE_HITS,
    VALUE_COMPLETE,
    VALUE_WAITS,
    VALUE_GROWN,
    VALUE_GIVEN_BACK,
    VALUE_PASSED,
};

typedef struct totals {
    size_t live_blocks, live_bytes, retired_bytes;
    uint64_t chunks, from_clean, waited, allocated;
} totals;

static totals add_up(const binning *self)
{
    totals sum = {0};
    for (size_t i = 0; i < self->bin_count; i++) {
        const bin *of = self->bins[i];
        size_t live, retired;
        sum.chunks += atomic_load_explicit(&of->chunks, memory_order_relaxed);
        sum.from_clean += atomic_load_explicit(&of->from_clean, memory_order_relaxed);
        sum.waited += atomic_load_explicit(&of->waited, memory_order_relaxed);
        sum.allocated += (uint64_t)strata_counters_sum(&of->counters, BIN_ALLOCATED);
        bin_count(of, &live, &retired);
        sum.live_blocks += live;
        sum.live_bytes += live * of->size;
        sum.retired_bytes += retired * of->size;
    }
    return sum;
}

static size_t minus(size_t from, uint64_t by)
{
    return from > by ? from - (size_t)by : 0;
}

/* The usage below, with blocks in place of chunks, which layers below count as live. */
strata_status binning_usage(strata_resource *resource, strata_usage *usage)
{
    binning *self = (binning *)resource;
    strata_resource *below = resource->upstream;
    strata_status status = below->ops->usage(below, usage);
    const totals own = add_up(self);
    uint64_t slots = atomic_load_explicit(&self->slot_bytes, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&self->taken_bytes, memory_order_relaxed);
    usage->live_bytes = minus(usage->live_bytes, taken) + own.live_bytes;
    usage->live_blocks = minus(usage->live_blocks, own.chunks) + own.live_blocks;
    usage->retired_bytes += own.retired_bytes;
    usage->bytes_outstanding = usage->live_bytes + usage->retired_bytes;
    if (status == STRATA_SUCCESS)
        usage->reserved_free += minus((size_t)slots, own.live_bytes + own.retired_bytes);
    return status;
}

const strata_value binning_values[BINNING_VALUES] = {
    [VALUE_LIVE_BLOCKS] = {"live_blocks", STRATA_VALUE_COUNT, false, "live blocks of the layer's own sizes"},
    [VALUE_LIVE_BYTES] = {"live_bytes", STRATA_VALUE_BYTES, false, "their bytes, each rounded up to its bin"},
    [VALUE_RETIRED_BYTES] = {"retired_bytes", STRATA_VALUE_BYTES, false,
                             "bytes of freed blocks neither known complete nor reused"},
    [VALUE_FREE_BYTES] = {"free_bytes", STRATA_VALUE_BYTES, false, "bytes of chunks in no block"},
    [VALUE_CHUNKS] = {"chunks", STRATA_VALUE_COUNT, false, "chunks held from the layer below"},
    [VALUE_CHUNK_BYTES] = {"chunk_bytes", STRATA_VALUE_BYTES, false, "their bytes"},
    [VALUE_HITS] = {"hits", STRATA_VALUE_COUNT, false, "blocks reused from the stream of the request"},
    [VALUE_COMPLETE] = {"complete", STRATA_VALUE_COUNT, false, "new blocks, and blocks known to be complete"},
    [VALUE_WAITS] = {"waits", STRATA_VALUE_COUNT, false, "blocks for which the stream of the request waits for others"},
    [VALUE_GROWN] = {"grown", STRATA_VALUE_COUNT, false, "chunks taken so far"},
    [VALUE_GIVEN_BACK] = {"given_back", STRATA_VALUE_COUNT, false, "chunks given back so far"},
    [VALUE_PASSED] = {"passed", STRATA_VALUE_COUNT, false, "blocks passed through from the layer below"},
};

strata_status binning_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    binning *self = (binning *)resource;
    const totals own = add_up(self);
    size_t slots = (size_t)atomic_load_explicit(&self->slot_bytes, memory_order_relaxed);
    const uint64_t all[] = {
        [VALUE_LIVE_BLOCKS] = own.live_blocks,
        [VALUE_LIVE_BYTES] = own.live_bytes,
        [VALUE_RETIRED_BYTES] = own.retired_bytes,
        [VALUE_FREE_BYTES] = minus(slots, own.live_bytes + own.retired_bytes),
        [VALUE_CHUNKS] = own.chunks,
        [VALUE_CHUNK_BYTES] = atomic_load_explicit(&self->taken_bytes, memory_order_relaxed),
        [VALUE_HITS] = minus(own.allocated, own.from_clean + own.waited),
        [VALUE_COMPLETE] = own.from_clean,
        [VALUE_WAITS] = own.waited,
        [VALUE_GROWN] = atomic_load_explicit(&self->grown, memory_order_relaxed),
        [VALUE_GIVEN_BACK] = atomic_load_explicit(&self->given_back, memory_order_relaxed),
        [VALUE_PASSED] = atomic_load_explicit(&self->passed, memory_order_relaxed),
    };
    *value = all[which];
    return STRATA_SUCCESS;
}

void binning_describe(strata_resource *resource, strata_emitter *to)
{
    const binning *self = (binning *)resource;
    strata_emit_list_begin(to, "bins");
    for (size_t i = 0; i < self->bin_count; i++) {
        const bin *of = self->bins[i];
        size_t live, retired;
        bin_count(of, &live, &retired);
        strata_emit_object_begin(to, NULL);
        strata_emit_bytes(to, "bytes", of->size);
        strata_emit_bytes(to, "chunk", of->chunk_bytes);
        strata_emit_count(to, "chunks", atomic_load_explicit(&of->chunks, memory_order_relaxed));
        strata_emit_count(to, "live_blocks", live);
        strata_emit_count(to, "retired_blocks", retired);
        strata_emit_count(to, "complete", atomic_load_explicit(&of->from_clean, memory_order_relaxed));
        strata_emit_count(to, "waits", atomic_load_explicit(&of->waited, memory_order_relaxed));
        strata_emit_object_end(to);
    }
    strata_emit_list_end(to);
}
