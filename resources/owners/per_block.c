/* A free waits until no work can touch the block: on the host, or, if the owner frees in stream order, on the freeing
 * stream. */
#include "resources/owners/per_block.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/blocks.h"
#include "core/blocks/uses.h"
#include "core/stack/completions.h"
#include "core/stack/neighbours.h"
#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"
#include "resources/owners/out_of_memory.h"

/* Totals, counted and read as in pending_frees.c. A block found by address may be freed before its allocation is
 * counted. Deferred bytes are freed, and wait for a capture's end. */
enum { ALLOCATED_BYTES, ALLOCATED_BLOCKS, FREED_BYTES, FREED_BLOCKS, DEFERRED_BYTES };

/* ---- allocating ---- */

static strata_block facts_of(const strata_per_block *self, CUdeviceptr address, const strata_request *request)
{
    size_t least = self->source->alignment;
    return (strata_block){
        .address = address,
        .bytes = request->bytes,
        .requested = request->bytes,
        .alignment = request->alignment > least ? request->alignment : least,
        .device = self->device->ordinal,
        .tag = request->tag,
        .stream = request->stream,
    };
}

static strata_status enter_block(strata_per_block *self, uint32_t slot, strata_block *block)
{
    strata_use_record record;
    strata_status status = strata_use_record_begin(&record, self->device, block->stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_entry_publish(strata_resource_table(&self->resource), slot, record.stream.timeline, record.stream.known,
                         block);
    return strata_use_record_end(&record);
}

static bool enter_index(strata_per_block *self, CUdeviceptr address, uint32_t slot)
{
    strata_lock_take(&self->lock);
    bool entered = strata_index_insert(&self->index, address, slot);
    strata_lock_release(&self->lock);
    return entered;
}

/* Takes a block out of the index, unless another one has its address by now. */
static void leave_index(strata_per_block *self, CUdeviceptr address, uint32_t slot)
{
    strata_lock_take(&self->lock);
    if (strata_index_at(&self->index, address) == slot)
        strata_index_remove(&self->index, address);
    strata_lock_release(&self->lock);
}

static strata_status take_memory(strata_per_block *self, const strata_request *request, size_t alignment,
                                 CUdeviceptr *address)
{
    strata_reclaim reclaim = {.device = self->device, .owner = &self->resource, .bytes = request->bytes};
    strata_status status;
    if (!self->source->of_device)
        return self->source->take(self, request, alignment, address);
    strata_error_suppress_begin();
    do
        status = self->source->take(self, request, alignment, address);
    while (status == STRATA_ERROR_OUT_OF_MEMORY && strata_reclaim_try_all(&reclaim));
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

strata_status strata_per_block_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    strata_per_block *self = (strata_per_block *)resource;
    strata_table *table = strata_resource_table(resource);
    *out = (strata_block){0};
    strata_stream_ref stream;
    strata_status status = strata_check_alignment(resource, request, self->source->most_alignment);
    if (status == STRATA_SUCCESS)
        status = strata_stream_resolve(self->device, request->stream, &stream);
    if (status == STRATA_SUCCESS)
        status = strata_check_device_now(self->device);
    if (status != STRATA_SUCCESS || request->bytes == 0)
        return status;
    strata_capture_frees_try_flush_any(&resource->stack->capture_frees, request->stream);
    uint32_t slot = strata_table_take_slot(table);
    if (!slot)
        return strata_fail_host_memory("a block");
    strata_block block = facts_of(self, 0, request);
    if ((status = take_memory(self, request, block.alignment, &block.address)) != STRATA_SUCCESS)
        goto give_slot;
    status = enter_index(self, block.address, slot) ? enter_block(self, slot, &block)
                                                    : strata_fail_host_memory("the address of a block");
    if (status != STRATA_SUCCESS)
        goto give_memory;
    *out = block;
    strata_thread *thread = strata_thread_current;
    strata_counters_add(&self->counters, thread, ALLOCATED_BYTES, (int64_t)request->bytes);
    strata_counters_add(&self->counters, thread, ALLOCATED_BLOCKS, 1);
    return STRATA_SUCCESS;

give_memory:
    leave_index(self, block.address, slot);
    block.id = (strata_block_id){0};
    strata_error_suppress_begin();
    self->source->give(self, &block, request->stream);
    strata_error_suppress_end(false);
give_slot:
    strata_entry_destroy(table, strata_table_entry(table, slot), slot);
    return status;
}

/* ---- waiting for uses ---- */

typedef struct waiting {
    const strata_device *device;
    const strata_timeline *freeing; /* the freeing stream's, which is synchronized as a whole; NULL: none */
} waiting;

static strata_status wait_for_point(strata_point point, void *data)
{
    const waiting *of = data;
    if (of->freeing && strata_point_timeline(point) == of->freeing->number)
        return STRATA_SUCCESS;
    return strata_point_synchronize_for(of->device, point);
}

static strata_status wait_for_uses(const strata_per_block *self, const strata_entry *entry,
                                   const strata_timeline *freeing)
{
    return strata_uses_visit(entry, wait_for_point, &(waiting){self->device, freeing});
}

static strata_status wait_without_stream(const strata_per_block *self, const strata_entry *entry,
                                         const strata_block *block)
{
    strata_point end;
    strata_status status = strata_uses_end_of_alloc_stream(entry, block, &end);
    if (status == STRATA_SUCCESS)
        status = wait_for_uses(self, entry, NULL);
    return status == STRATA_SUCCESS && end ? strata_point_synchronize_for(self->device, end) : status;
}

/* Synchronizes the freeing stream. The work of another device's stream has ended with its context. */
static strata_status wait_for_stream(const strata_per_block *self, const strata_stream_ref *stream)
{
    strata_device *own = strata_timeline_own_device(stream);
    return own == self->device || strata_device_is_usable_now(own)
               ? strata_stream_synchronize(self->device, stream->handle)
               : STRATA_SUCCESS;
}

/* Waits for recorded uses on other streams, then for the freeing stream, since uses elsewhere often follow it. In
 * stream order the freeing stream waits instead. */
static strata_status wait_for_block(strata_per_block *self, const strata_entry *entry, const strata_block *block,
                                    CUstream stream)
{
    strata_stream_ref ref;
    if (stream == STRATA_STREAM_GONE)
        return wait_without_stream(self, entry, block);
    strata_status status = strata_stream_resolve(self->device, stream, &ref);
    if (status == STRATA_SUCCESS) /* detects before any wait a capture that forbids the last one */
        status = strata_check_call_scope(self->device, strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    if (self->ordered)
        return strata_uses_visit(entry, strata_point_order, &ref);
    status = wait_for_uses(self, entry, ref.timeline);
    return status == STRATA_SUCCESS ? wait_for_stream(self, &ref) : status;
}

/* ---- freeing ---- */

/* Gives the memory back and ends the block. It leaves the index last: if the memory is refused, inserting it again
 * could fail. With STRATA_STREAM_GONE no stream has pending work. */
static strata_status give_memory_back(strata_per_block *self, strata_entry *entry, const strata_block *block,
                                      CUstream stream)
{
    strata_status status = self->source->give(self, block, stream == STRATA_STREAM_GONE ? NULL : stream);
    if (status != STRATA_SUCCESS)
        return status;
    leave_index(self, block->address, block->id.slot);
    strata_report_completion(&self->resource,
                             &(strata_completion){.id = block->id, .bytes = block->bytes, .last = true});
    strata_entry_destroy(strata_resource_table(&self->resource), entry, block->id.slot);
    return STRATA_SUCCESS;
}

/* Counts a free; with `times` -1 takes that back. */
static void count_free(strata_per_block *self, const strata_block *block, int64_t times)
{
    strata_thread *thread = strata_thread_self();
    strata_counters_add(&self->counters, thread, FREED_BYTES, times * (int64_t)block->bytes);
    strata_counters_add(&self->counters, thread, FREED_BLOCKS, times);
}

static void count_deferred(strata_per_block *self, const strata_block *block, int64_t times)
{
    strata_counters_add(&self->counters, strata_thread_self(), DEFERRED_BYTES, times * (int64_t)block->bytes);
}

static strata_status perform_free(strata_resource *resource, strata_entry *entry, const strata_block *block,
                                  CUstream stream, bool finished)
{
    strata_per_block *self = (strata_per_block *)resource;
    strata_status status = finished ? wait_for_uses(self, entry, NULL) : wait_for_block(self, entry, block, stream);
    if (status == STRATA_SUCCESS)
        status = give_memory_back(self, entry, block, finished ? STRATA_STREAM_GONE : stream);
    if (status == STRATA_SUCCESS)
        count_deferred(self, block, -1);
    return status;
}

static strata_status defer(strata_per_block *self, strata_entry *entry, const strata_block *block, CUstream stream)
{
    count_deferred(self, block, 1);
    count_free(self, block, 1); /* before another thread may perform it */
    strata_status status = strata_capture_frees_add(&self->resource.stack->capture_frees, &self->resource, perform_free,
                                                    entry, block, stream);
    if (status == STRATA_SUCCESS)
        return status;
    count_free(self, block, -1);
    count_deferred(self, block, -1);
    return status;
}

/* Replaces facts that a free does not check and a user's copy may have wrong. */
static strata_block with_own_facts(const strata_entry *entry, const strata_block *given)
{
    strata_block block = *given;
    block.alignment = (size_t)1 << entry->alignment_log2;
    block.tag = atomic_load_explicit(&entry->tag, memory_order_relaxed);
    block.stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    return block;
}

strata_status strata_per_block_deallocate(strata_resource *resource, const strata_block *given, CUstream stream)
{
    strata_per_block *self = (strata_per_block *)resource;
    strata_entry *entry;
    strata_status status = strata_entry_retire(strata_resource_table(resource), given, &entry);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_block block = with_own_facts(entry, given);
    strata_capture_frees_try_flush_any(&resource->stack->capture_frees, stream);
    strata_error_suppress_begin();
    status = wait_for_block(self, entry, &block, stream);
    strata_error_suppress_end(status != STRATA_SUCCESS && status != STRATA_ERROR_STREAM_CAPTURE);
    if (status == STRATA_ERROR_STREAM_CAPTURE)
        status = defer(self, entry, &block, stream);
    else if (status == STRATA_SUCCESS && (status = give_memory_back(self, entry, &block, stream)) == STRATA_SUCCESS)
        count_free(self, &block, 1);
    if (status != STRATA_SUCCESS)
        strata_entry_revive(entry);
    return status;
}

strata_status strata_per_block_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    strata_per_block *self = (strata_per_block *)resource;
    strata_capture_frees *deferred = &resource->stack->capture_frees;
    int64_t before = strata_counters_sum(&self->counters, DEFERRED_BYTES);
    strata_capture_frees_flush_for_reap(deferred, mode == STRATA_REAP_WAIT);
    int64_t now = strata_counters_sum(&self->counters, DEFERRED_BYTES);
    *bytes = before > now ? (size_t)(before - now) : 0;
    return mode == STRATA_REAP_WAIT && strata_capture_frees_any(deferred) ? strata_capture_frees_refuse(deferred)
                                                                          : STRATA_SUCCESS;
}

/* ---- the rest of the interface ---- */

strata_status strata_per_block_usage(strata_resource *resource, strata_usage *usage)
{
    strata_per_block *self = (strata_per_block *)resource;
    int64_t freed = strata_counters_sum(&self->counters, FREED_BYTES);
    int64_t freed_blocks = strata_counters_sum(&self->counters, FREED_BLOCKS);
    size_t live = strata_counters_between(freed, strata_counters_sum(&self->counters, ALLOCATED_BYTES));
    int64_t allocated_blocks = strata_counters_sum(&self->counters, ALLOCATED_BLOCKS);
    size_t retired = strata_counters_between(0, strata_counters_sum(&self->counters, DEFERRED_BYTES));
    *usage = (strata_usage){
        .live_bytes = live,
        .retired_bytes = retired,
        .bytes_outstanding = live + retired,
        .live_blocks = strata_counters_between(freed_blocks, allocated_blocks),
        .reserved_bytes = live + retired,
    };
    return STRATA_SUCCESS;
}

/* Finds the last live block that starts at or before `address`. One whose free is in flight may lie between, in a new
 * block's range. The lock is held. */
static bool find_live(const strata_per_block *self, CUdeviceptr address, strata_block *out)
{
    CUdeviceptr start = address;
    for (uint32_t slot; (slot = strata_index_floor(&self->index, start, &start)); start--)
        if (strata_entry_describe(strata_resource_table(&self->resource), slot, out))
            return true;
    return false;
}

strata_status strata_per_block_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    strata_per_block *self = (strata_per_block *)resource;
    strata_lock_take(&self->lock);
    bool found = find_live(self, address, out) && address - out->address < out->bytes;
    strata_lock_release(&self->lock);
    if (found)
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

strata_status strata_per_block_enter(strata_per_block *self, strata_call_scope *scope, const strata_block *given)
{
    const unsigned needs = STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED;
    strata_status status = strata_call_scope_enter(scope, self->device, needs);
    bool again = status != STRATA_SUCCESS && given && !given->id.generation;
    return again ? strata_call_scope_enter(scope, self->device, needs) : status;
}

strata_status strata_per_block_free_memory(strata_per_block *self, const strata_block *block, CUstream stream)
{
    (void)stream;
    strata_call_scope scope;
    strata_status status = strata_per_block_enter(self, &scope, block);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.MemFree(block->address);
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    return strata_fail_driver(result, "cuMemFree", "freeing block 0x%llx", (unsigned long long)block->address);
}

bool strata_per_block_has(strata_per_block *self, CUdeviceptr address)
{
    strata_block block;
    strata_lock_take(&self->lock);
    uint32_t slot = strata_index_at(&self->index, address);
    bool has = slot && strata_entry_describe(strata_resource_table(&self->resource), slot, &block);
    strata_lock_release(&self->lock);
    return has;
}

int strata_per_block_device(strata_resource *resource)
{
    return ((strata_per_block *)resource)->device->ordinal;
}

void strata_per_block_init(strata_per_block *self, const strata_resource_ops *ops,
                           const strata_per_block_source *source, strata_device *device)
{
    self->resource.ops = ops;
    self->source = source;
    self->device = device;
    strata_lock_init(&self->lock, STRATA_RANK_INDEX);
}

void strata_per_block_clear(strata_per_block *self)
{
    strata_index_destroy(&self->index);
    strata_counters_destroy(&self->counters);
    strata_lock_destroy(&self->lock);
}

void strata_per_block_destroy(strata_resource *resource)
{
    strata_per_block_clear((strata_per_block *)resource);
    strata_host_free(resource);
}
