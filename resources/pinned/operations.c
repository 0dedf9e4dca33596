/* The ops table. A pair on a known stream makes no driver call, but for a poll every so many frees. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "core/stack/completions.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"
#include "resources/owners/out_of_memory.h"
#include "resources/pinned/internal.h"

/* ---- allocating ---- */

static inline void count(pinned *self, unsigned bytes_of, unsigned blocks_of, int64_t bytes, int64_t blocks)
{
    strata_stripe *mine = strata_counters_self(&self->counters, strata_thread_self());
    strata_counters_add_to(&self->counters, mine, bytes_of, bytes);
    strata_counters_add_to(&self->counters, mine, blocks_of, blocks);
}

static inline strata_status take_slot(pinned *self, const strata_request *request, uint32_t *slot)
{
    const unsigned class = request->alignment <= PINNED_UNIT ? pinned_class(request->bytes) : PINNED_NO_CLASS;
    *slot = class == PINNED_NO_CLASS ? 0 : pinned_lane_take(self, class);
    return __builtin_expect(*slot != 0, 1) ? STRATA_SUCCESS : pinned_take(self, request, class, slot);
}

/* Makes a block of a slot. An unknown stream's use record is open. */
static inline void publish(pinned *self, uint32_t slot, const strata_request *request, strata_timeline *timeline,
                           bool known, strata_block *out)
{
    const strata_entry *entry = pinned_entry(self, slot);
    const CUdeviceptr address = atomic_load_explicit(&entry->address, memory_order_relaxed);
    const size_t alignment = request->alignment > PINNED_UNIT ? request->alignment : PINNED_UNIT;
    strata_block_fill(out, request, address, request->bytes, alignment);
    strata_entry_publish(strata_resource_table(&self->resource), slot, timeline, known, out);
    count(self, PINNED_ALLOCATED_BYTES, PINNED_ALLOCATED_BLOCKS, (int64_t)request->bytes, 1);
}

static strata_status publish_recorded(pinned *self, uint32_t slot, const strata_request *request,
                                      const strata_stream_ref *stream, strata_block *out)
{
    strata_use_record record;
    strata_status status = strata_use_record_begin_on(&record, stream);
    if (status == STRATA_SUCCESS) {
        publish(self, slot, request, record.stream.timeline, record.stream.known, out);
        status = strata_use_record_end(&record);
        if (status == STRATA_SUCCESS)
            return STRATA_SUCCESS;
        count(self, PINNED_ALLOCATED_BYTES, PINNED_ALLOCATED_BLOCKS, -(int64_t)request->bytes, -1);
    }
    *out = (strata_block){0};
    pinned_memory_give(self, slot);
    return status;
}

static __attribute__((noinline)) strata_status allocate_slow(pinned *self, const strata_request *request,
                                                             strata_block *out)
{
    uint32_t slot;
    strata_stream_ref stream;
    *out = (strata_block){0};
    strata_status status = strata_check_alignment(&self->resource, request, PINNED_MOST_ALIGNMENT);
    if (status == STRATA_SUCCESS)
        status = strata_stream_resolve(self->device, request->stream, &stream);
    if (status != STRATA_SUCCESS || request->bytes == 0)
        return status;
    strata_capture_frees_try_flush_any(&self->resource.stack->capture_frees, request->stream);
    status = take_slot(self, request, &slot);
    return status == STRATA_SUCCESS ? publish_recorded(self, slot, request, &stream, out) : status;
}

static strata_status pinned_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    pinned *self = (pinned *)resource;
    uint32_t slot;
    strata_timeline *timeline = strata_known_timeline(self->device, request->stream);
    const bool fast = timeline && !strata_timeline_is_early(timeline) && request->bytes &&
                      request->alignment <= PINNED_UNIT && !strata_capture_frees_any(&resource->stack->capture_frees);
    if (__builtin_expect(!fast, 0))
        return allocate_slow(self, request, out);
    const strata_status status = take_slot(self, request, &slot);
    if (__builtin_expect(status == STRATA_SUCCESS, 1))
        publish(self, slot, request, timeline, true, out);
    else
        *out = (strata_block){0};
    return status;
}

/* ---- freeing ---- */

/* Refuses a free if a use can never be waited for: no event, and the stream's handle is unknown. */
static strata_status check_used(strata_point point, void *device)
{
    const uint16_t number = strata_point_timeline(point);
    const strata_timeline *timeline = strata_timeline_of(point);
    if (strata_point_known_complete(point) ||
        strata_timeline_is_known(number, atomic_load_explicit(&timeline->incarnation, memory_order_relaxed)) ||
        strata_point_epoch(strata_timeline_last_closed(number)) >= strata_point_epoch(point))
        return STRATA_SUCCESS;
    return strata_point_synchronize_for(device, point);
}

/* The point that the memory waits for beside its uses. */
static strata_status free_point(pinned *self, const strata_entry *entry, const strata_block *block, CUstream handle,
                                strata_point *point)
{
    strata_stream_ref stream;
    strata_status status;
    if (handle == STRATA_STREAM_GONE) {
        status = strata_uses_end_of_alloc_stream(entry, block, point);
    } else if ((status = strata_stream_resolve(self->device, handle, &stream)) == STRATA_SUCCESS) {
        status = strata_check_call_scope(self->device, strata_call_scope_for(handle));
        if (status == STRATA_SUCCESS)
            status = strata_stream_point(&stream, point);
    }
    if (status == STRATA_SUCCESS)
        status = strata_uses_visit(entry, check_used, self->device);
    if (status == STRATA_SUCCESS && !*point)
        *point = strata_point_make(self->device->legacy->number, 0); /* complete */
    return status;
}

/* Performs a free that waited for a capture's end, and is counted. */
static strata_status perform_free(strata_resource *resource, strata_entry *entry, const strata_block *block,
                                  CUstream stream, bool finished)
{
    pinned *self = (pinned *)resource;
    strata_point point = strata_point_make(self->device->legacy->number, 0);
    const strata_status status = finished ? STRATA_SUCCESS : free_point(self, entry, block, stream, &point);
    if (status == STRATA_SUCCESS)
        pinned_lane_add(self, entry, block->id.slot, point);
    return status;
}

static strata_status defer(pinned *self, strata_entry *entry, const strata_block *block, CUstream stream)
{
    count(self, PINNED_FREED_BYTES, PINNED_FREED_BLOCKS, (int64_t)block->bytes, 1); /* before it may be performed */
    const strata_status status = strata_capture_frees_add(&self->resource.stack->capture_frees, &self->resource,
                                                          perform_free, entry, block, stream);
    if (status != STRATA_SUCCESS)
        count(self, PINNED_FREED_BYTES, PINNED_FREED_BLOCKS, -(int64_t)block->bytes, -1);
    return status;
}

static __attribute__((noinline)) strata_status free_slow(pinned *self, strata_entry *entry, const strata_block *block,
                                                         CUstream stream)
{
    strata_point point = 0;
    strata_capture_frees_try_flush_any(&self->resource.stack->capture_frees, stream);
    strata_error_suppress_begin();
    strata_status status = free_point(self, entry, block, stream, &point);
    strata_error_suppress_end(status != STRATA_SUCCESS && status != STRATA_ERROR_STREAM_CAPTURE);
    if (status == STRATA_ERROR_STREAM_CAPTURE)
        status = defer(self, entry, block, stream);
    else if (status == STRATA_SUCCESS) {
        count(self, PINNED_FREED_BYTES, PINNED_FREED_BLOCKS, (int64_t)block->bytes, 1);
        pinned_lane_add(self, entry, block->id.slot, point);
    }
    if (status != STRATA_SUCCESS)
        strata_entry_revive(entry);
    return status;
}

static strata_status pinned_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    pinned *self = (pinned *)resource;
    strata_entry *entry;
    const strata_status status = strata_entry_retire(strata_resource_table(resource), block, &entry);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    const strata_timeline *timeline = strata_known_timeline(self->device, stream);
    const bool fast = timeline && !strata_timeline_is_early(timeline) && !strata_call_scope_for(stream) &&
                      !strata_capture_frees_any(&resource->stack->capture_frees) &&
                      !atomic_load_explicit(&strata_timelines_uncovered, memory_order_relaxed);
    if (__builtin_expect(!fast, 0))
        return free_slow(self, entry, block, stream);
    count(self, PINNED_FREED_BYTES, PINNED_FREED_BLOCKS, (int64_t)block->bytes, 1);
    pinned_lane_add(self, entry, block->id.slot, strata_timeline_now(timeline));
    return STRATA_SUCCESS;
}

/* ---- the rest of the interface ---- */

static strata_status pinned_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    strata_capture_frees *deferred = &resource->stack->capture_frees;
    strata_capture_frees_flush_for_reap(deferred, mode == STRATA_REAP_WAIT);
    const strata_status status = pinned_lanes_reap((pinned *)resource, mode, bytes);
    return status == STRATA_SUCCESS && mode == STRATA_REAP_WAIT && strata_capture_frees_any(deferred)
               ? strata_capture_frees_refuse(deferred)
               : status;
}

static strata_status pinned_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    *bytes = 0;
    return pinned_trim_memory((pinned *)resource, keep_bytes, bytes);
}

static uint32_t pinned_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_STREAM_ORDERED | STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND;
}

static strata_status pinned_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    pinned *self = (pinned *)resource;
    CUdeviceptr start;
    strata_spin_take(&self->index_lock);
    const uint32_t slot = strata_index_floor(&self->index, address, &start);
    const bool found = slot && strata_entry_describe(strata_resource_table(resource), slot, out) &&
                       address - out->address < out->bytes;
    strata_spin_release(&self->index_lock);
    if (found)
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

static int pinned_device(strata_resource *resource)
{
    return ((pinned *)resource)->device->ordinal;
}

static void pinned_sum_frees(strata_resource *resource, struct strata_stream_sums *sums)
{
    pinned_lanes_sum((pinned *)resource, sums);
}

static void pinned_destroy(strata_resource *resource)
{
    pinned *self = (pinned *)resource;
    pinned_memory_destroy(self);
    strata_index_destroy(&self->index);
    strata_counters_destroy(&self->counters);
    strata_host_free(self);
}

const strata_resource_ops pinned_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(pinned_bytes),
    .name = "pinned",
    .allocate = pinned_allocate,
    .deallocate = pinned_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = pinned_reap,
    .trim = pinned_trim,
    .usage = pinned_usage,
    .capabilities = pinned_capabilities,
    .find = pinned_find,
    .destroy = pinned_destroy,
    .device = pinned_device,
    .values = pinned_values,
    .value_count = PINNED_VALUES,
    .get_value = pinned_get_value,
    .sum_frees = pinned_sum_frees,
};
