/* null: blocks without memory. A block's address is computed from its slot: it is unique, and leads to the block
 * without an index:
 *
 *     63 .. 56   55   54   53 ...... 30   29 ...... 0
 *         0    |  1 |  0 |     slot     |   offset       up to 1 GiB
 *         0    |  1 |  1 |  slot |      offset           up to 256 GiB, in the first 2^16 slots: 53 .. 38
 *       0x40 and more   61 ..... 38   37 ....... 0
 *                     |    slot     |   offset           up to 256 GiB, in a later slot
 *
 * Devices map nothing from 2^49 on, operating systems nothing from 2^47 on unless asked. An address index
 * (core/blocks/address_index.h), as in a pool over null, takes addresses below 2^56; the last form needs many blocks,
 * large ones among them. */
#include <strata/null.h>

#include "core/base/counters.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "core/blocks/blocks.h"
#include "core/stack/completions.h"
#include "core/streams/known_streams.h"
#include "core/streams/use_records.h"
#include "resources/builtin.h"

enum { SMALL_SHIFT = 30, LARGE_SHIFT = 38, LARGE_BIT = 54, FIRST_BIT = 55, BEYOND_BIT = 62, LEAST_ALIGNMENT = 256 };

_Static_assert((UINT64_C(1) << (LARGE_BIT - SMALL_SHIFT)) >= (uint64_t)STRATA_ENTRY_CHUNK * STRATA_ENTRY_CHUNKS,
               "every slot has an address");

static const size_t small = (size_t)1 << SMALL_SHIFT, largest = (size_t)1 << LARGE_SHIFT;

static CUdeviceptr small_address(uint32_t slot)
{
    return UINT64_C(1) << FIRST_BIT | (CUdeviceptr)slot << SMALL_SHIFT;
}

static CUdeviceptr large_address(uint32_t slot)
{
    const CUdeviceptr at = (CUdeviceptr)slot << LARGE_SHIFT;
    return at >> LARGE_BIT ? UINT64_C(1) << BEYOND_BIT | at : UINT64_C(3) << LARGE_BIT | at;
}

/* The slot that an address was computed from; 0: none. */
static uint32_t slot_of(CUdeviceptr address)
{
    const CUdeviceptr beyond = address - (UINT64_C(1) << BEYOND_BIT);
    if (address >> BEYOND_BIT == 1)
        return (uint32_t)(beyond >> LARGE_SHIFT);
    if (address >> LARGE_BIT == 2)
        return (uint32_t)((address - (UINT64_C(2) << LARGE_BIT)) >> SMALL_SHIFT);
    return address >> LARGE_BIT == 3 ? (uint32_t)((address - (UINT64_C(3) << LARGE_BIT)) >> LARGE_SHIFT) : 0;
}

/* Totals, as in pending_frees.c. */
enum { ALLOCATED_BYTES, ALLOCATED_BLOCKS, FREED_BYTES, FREED_BLOCKS };

typedef struct null_resource {
    strata_resource resource;
    strata_device *device;
    strata_counters counters;
} null_resource;

/* Publishes a block of a stream that must be identified, or that gets an event. */
static __attribute__((noinline)) strata_status publish_slow(null_resource *self, uint32_t slot, strata_block *made)
{
    strata_use_record record;
    strata_status status = strata_use_record_begin(&record, self->device, made->stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_entry_publish(strata_resource_table(&self->resource), slot, record.stream.timeline, record.stream.known,
                         made);
    return strata_use_record_end(&record);
}

static strata_status refuse_size(const strata_request *request)
{
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_MEMORY);
    error->requested = request->bytes;
    error->limit = largest;
    error->tag = request->tag;
    return strata_error_raise(error, "null: request too large: %s aligned to %zu; a block has at most %s",
                              strata_size_text(request->bytes).text, request->alignment,
                              strata_size_text(largest).text);
}

static strata_status null_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    null_resource *self = (null_resource *)resource;
    strata_table *table = strata_resource_table(resource);
    const bool is_small = request->bytes <= small && request->alignment <= small;
    if (__builtin_expect(!is_small && (request->bytes > largest || request->alignment > largest), 0))
        return refuse_size(request);
    if (__builtin_expect(!request->bytes, 0)) {
        *out = (strata_block){0};
        return STRATA_SUCCESS;
    }
    uint32_t slot = strata_table_take_slot(table);
    if (__builtin_expect(!slot, 0))
        return strata_fail_host_memory("a block");
    const CUdeviceptr address = __builtin_expect(is_small, 1) ? small_address(slot) : large_address(slot);
    strata_block_fill(out, request, address, request->bytes,
                      request->alignment > LEAST_ALIGNMENT ? request->alignment : LEAST_ALIGNMENT);
    strata_timeline *timeline = strata_known_timeline(self->device, request->stream);
    if (__builtin_expect(timeline && !strata_timeline_is_early(timeline), 1)) {
        strata_entry_publish(table, slot, timeline, true, out);
    } else {
        strata_status status = publish_slow(self, slot, out);
        if (status != STRATA_SUCCESS) {
            strata_entry_destroy(table, strata_table_entry(table, slot), slot);
            *out = (strata_block){0};
            return status;
        }
    }
    strata_stripe *mine = strata_counters_self(&self->counters, strata_thread_current);
    strata_counters_add_to(&self->counters, mine, ALLOCATED_BYTES, (int64_t)request->bytes);
    strata_counters_add_to(&self->counters, mine, ALLOCATED_BLOCKS, 1);
    return STRATA_SUCCESS;
}

/* Ends a block at once: there is no memory to wait for. */
static strata_status null_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    (void)stream;
    null_resource *self = (null_resource *)resource;
    strata_table *table = strata_resource_table(resource);
    strata_entry *entry;
    strata_status status = strata_entry_retire(table, block, &entry);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    const strata_block_id id = block->id;
    const size_t bytes = block->bytes;
    if (resource->stack->completion_sink_count)
        strata_report_completion(resource, &(strata_completion){.id = id, .bytes = bytes, .last = true});
    strata_entry_destroy(table, entry, id.slot);
    strata_stripe *mine = strata_counters_self(&self->counters, strata_thread_self());
    strata_counters_add_to(&self->counters, mine, FREED_BYTES, (int64_t)bytes);
    strata_counters_add_to(&self->counters, mine, FREED_BLOCKS, 1);
    return STRATA_SUCCESS;
}

static strata_status null_usage(strata_resource *resource, strata_usage *usage)
{
    null_resource *self = (null_resource *)resource;
    int64_t freed = strata_counters_sum(&self->counters, FREED_BYTES);
    int64_t freed_blocks = strata_counters_sum(&self->counters, FREED_BLOCKS);
    size_t live = strata_counters_between(freed, strata_counters_sum(&self->counters, ALLOCATED_BYTES));
    *usage = (strata_usage){
        .live_bytes = live,
        .bytes_outstanding = live,
        .live_blocks = strata_counters_between(freed_blocks, strata_counters_sum(&self->counters, ALLOCATED_BLOCKS)),
        .reserved_bytes = live,
    };
    return STRATA_SUCCESS;
}

static uint32_t null_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_STREAM_ORDERED | STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND;
}

static strata_status null_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    const strata_table *table = strata_resource_table(resource);
    *out = (strata_block){0};
    const strata_block_id id = {.table = strata_table_id(table), .slot = slot_of(address)};
    if (id.slot && strata_table_lookup(table, id) && strata_entry_describe(table, id.slot, out) &&
        address - out->address < out->bytes)
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

static int null_device(strata_resource *resource)
{
    return ((null_resource *)resource)->device->ordinal;
}

static void null_destroy(strata_resource *resource)
{
    null_resource *self = (null_resource *)resource;
    strata_counters_destroy(&self->counters);
    strata_host_free(self);
}

static const strata_resource_ops null_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "null",
    .allocate = null_allocate,
    .deallocate = null_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .usage = null_usage,
    .capabilities = null_capabilities,
    .find = null_find,
    .destroy = null_destroy,
    .device = null_device,
    .without_memory = true,
};

strata_status strata_null_create(int ordinal, const strata_null_options *options, strata_resource **out)
{
    strata_null_options read;
    strata_device *device;
    strata_status status = strata_options_begin("null", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    null_resource *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a null resource");
    self->resource.ops = &null_ops;
    self->device = device;
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static strata_status make_null(int device, const void *options, strata_resource **out)
{
    return strata_null_create(device, options, out);
}

const strata_layer strata_null_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "null",
    .help = "blocks without memory",
    .options_size = sizeof(strata_null_options),
    .create = make_null,
};
