/* direct: one cuMemAlloc for each block. A free waits on the host until nothing can touch the block, then gives it
 * back. */
#include <strata/direct.h>

#include "core/address_index.h"
#include "core/counters.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/stack.h"
#include "core/uses.h"
#include "resources/builtin.h"
#include "resources/out_of_memory.h"

enum {
    ALIGNMENT = 256,      /* CUDA C++ Programming Guide, "Device Memory Accesses": at least 256 bytes */
    CHARGE_GRANULE = 512, /* what cuMemAlloc rounds to: tests/answers/h200.txt, "memory." */
};

/* Totals since the start, counted and read as in resources/retired.c. A block that is found by its address may be freed
 * before its allocation is counted. */
/* What is deferred is freed, and not yet back with the driver. */
enum { ALLOCATED_BYTES, ALLOCATED_BLOCKS, FREED_BYTES, FREED_BLOCKS, DEFERRED_BYTES };

typedef struct direct {
    strata_resource resource;
    strata_device *device;
    strata_counters counters;
    strata_lock lock;
    strata_address_index index; /* live blocks by address, and blocks whose free is under way; guarded by lock */
} direct;

static strata_status enter_block(direct *self, CUdeviceptr address, const strata_request *request, uint32_t slot,
                                 strata_block *out)
{
    strata_table *table = strata_resource_table(&self->resource);
    strata_note note;
    strata_status status = strata_note_begin(&note, self->device, request->stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_block made = {
        .address = address,
        .bytes = request->bytes,
        .requested = request->bytes,
        .alignment = ALIGNMENT,
        .tag = request->tag,
        .stream = request->stream,
    };
    strata_entry_publish(table, slot, note.stream.timeline, note.stream.known, &made);
    if ((status = strata_note_end(&note)) == STRATA_SUCCESS)
        *out = made;
    return status;
}

static strata_status allocate_memory(direct *self, const strata_request *request, CUdeviceptr *address)
{
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.MemAlloc(address, request->bytes);
    strata_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    return strata_fail_allocation(&self->resource, request, result, "cuMemAlloc");
}

static CUresult free_memory(direct *self, CUdeviceptr address)
{
    strata_scope scope;
    if (strata_scope_enter(&scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED) != STRATA_SUCCESS)
        return CUDA_ERROR_UNKNOWN;
    CUresult result = strata_cu.MemFree(address);
    strata_scope_leave(&scope);
    return result;
}

static strata_status direct_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    direct *self = (direct *)resource;
    strata_table *table = strata_resource_table(resource);
    *out = (strata_block){0};
    strata_stream_ref stream;
    strata_status status = strata_check_alignment(resource, request, ALIGNMENT);
    if (status == STRATA_SUCCESS)
        status = strata_stream_resolve(self->device, request->stream, &stream);
    if (status != STRATA_SUCCESS || request->bytes == 0)
        return status;
    strata_deferred_settle_quietly(&resource->stack->deferred, request->stream);
    uint32_t slot = strata_table_take_slot(table);
    if (!slot)
        return strata_fail_host_memory("a block");
    CUdeviceptr address = 0;
    if ((status = allocate_memory(self, request, &address)) != STRATA_SUCCESS)
        goto give_slot;
    strata_lock_take(&self->lock);
    bool indexed = strata_index_insert(&self->index, address, slot);
    strata_lock_release(&self->lock);
    status =
        indexed ? enter_block(self, address, request, slot, out) : strata_fail_host_memory("the address of a block");
    if (status != STRATA_SUCCESS)
        goto give_memory;
    strata_thread *thread = strata_thread_current;
    strata_counters_add(&self->counters, thread, ALLOCATED_BYTES, (int64_t)request->bytes);
    strata_counters_add(&self->counters, thread, ALLOCATED_BLOCKS, 1);
    return STRATA_SUCCESS;

give_memory:
    strata_lock_take(&self->lock);
    strata_index_remove(&self->index, address);
    strata_lock_release(&self->lock);
    free_memory(self, address);
give_slot:
    strata_entry_end(table, strata_table_entry(table, slot), slot);
    return status;
}

/* The timeline of the freeing stream, which is waited for as a whole; or NULL. */
static strata_status wait_for_point(strata_point point, void *data)
{
    const strata_timeline *freeing = data;
    if (freeing && strata_point_timeline(point) == freeing->number)
        return STRATA_SUCCESS;
    return strata_point_synchronize(point);
}

static strata_status wait_without_stream(const strata_entry *entry, const strata_block *block)
{
    strata_point end;
    strata_status status = strata_uses_end_of_home(entry, block, &end);
    if (status == STRATA_SUCCESS)
        status = strata_uses_visit(entry, wait_for_point, NULL);
    return status == STRATA_SUCCESS && end ? strata_point_synchronize(end) : status;
}

/* Waits until nothing can touch the block: every noted use elsewhere, and what was submitted to the freeing stream.
 * That comes last: what was used elsewhere often came after it. */
static strata_status wait_for_block(direct *self, const strata_entry *entry, const strata_block *block, CUstream stream)
{
    strata_stream_ref ref;
    if (stream == STRATA_STREAM_GONE)
        return wait_without_stream(entry, block);
    strata_status status = strata_stream_resolve(self->device, stream, &ref);
    if (status == STRATA_SUCCESS) /* a capture that forbids the last wait is met before the first */
        status = strata_scope_check(self->device, strata_scope_for(stream));
    if (status == STRATA_SUCCESS)
        status = strata_uses_visit(entry, wait_for_point, ref.timeline);
    return status == STRATA_SUCCESS ? strata_stream_synchronize(self->device, stream) : status;
}

/* Takes a block whose memory is back with the driver out of the index, unless that has given the address to a new one.
 * Not before: putting it in again, should the driver refuse the free, could fail. */
static void leave_index(direct *self, const strata_block *block)
{
    strata_lock_take(&self->lock);
    if (strata_index_at(&self->index, block->address) == block->id.slot)
        strata_index_remove(&self->index, block->address);
    strata_lock_release(&self->lock);
}

/* Gives the memory of a block that nothing can touch any more back to the driver. */
static strata_status give_memory_back(direct *self, strata_entry *entry, const strata_block *block)
{
    CUresult result = free_memory(self, block->address);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemFree", "freeing block 0x%llx", (unsigned long long)block->address);
    leave_index(self, block);
    strata_report_completion(&self->resource,
                             &(strata_completion){.id = block->id, .bytes = block->bytes, .last = true});
    strata_entry_end(strata_resource_table(&self->resource), entry, block->id.slot);
    return STRATA_SUCCESS;
}

/* `times` is 1, or -1 to take it back. */
static void count_free(direct *self, const strata_block *block, int64_t times)
{
    strata_thread *thread = strata_thread_self();
    strata_counters_add(&self->counters, thread, FREED_BYTES, times * (int64_t)block->bytes);
    strata_counters_add(&self->counters, thread, FREED_BLOCKS, times);
}

static void count_deferred(direct *self, const strata_block *block, int64_t times)
{
    strata_counters_add(&self->counters, strata_thread_self(), DEFERRED_BYTES, times * (int64_t)block->bytes);
}

static strata_status carry_out(strata_resource *resource, strata_entry *entry, const strata_block *block,
                               CUstream stream, bool finished)
{
    direct *self = (direct *)resource;
    strata_status status =
        finished ? strata_uses_visit(entry, wait_for_point, NULL) : wait_for_block(self, entry, block, stream);
    if (status == STRATA_SUCCESS)
        status = give_memory_back(self, entry, block);
    if (status == STRATA_SUCCESS)
        count_deferred(self, block, -1);
    return status;
}

/* Where the wait meets a capture, the free waits for its end. */
static strata_status defer(direct *self, strata_entry *entry, const strata_block *block, CUstream stream)
{
    count_deferred(self, block, 1);
    count_free(self, block, 1); /* before another thread may carry it out */
    strata_status status =
        strata_deferred_add(&self->resource.stack->deferred, &self->resource, carry_out, entry, block, stream);
    if (status == STRATA_SUCCESS)
        return status;
    count_free(self, block, -1);
    count_deferred(self, block, -1);
    return status;
}

static strata_status direct_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    direct *self = (direct *)resource;
    strata_entry *entry;
    strata_status status = strata_entry_retire(strata_resource_table(resource), block, &entry);
    if (status != STRATA_SUCCESS)
        return status;
    strata_deferred_settle_quietly(&resource->stack->deferred, stream);
    strata_error_hush();
    status = wait_for_block(self, entry, block, stream);
    strata_error_unhush(status != STRATA_SUCCESS && status != STRATA_ERROR_STREAM_CAPTURE);
    if (status == STRATA_ERROR_STREAM_CAPTURE) {
        status = defer(self, entry, block, stream);
    } else if (status == STRATA_SUCCESS && (status = give_memory_back(self, entry, block)) == STRATA_SUCCESS) {
        count_free(self, block, 1);
    }
    if (status != STRATA_SUCCESS)
        strata_entry_revive(entry);
    return status;
}

static strata_status direct_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    direct *self = (direct *)resource;
    strata_deferred *deferred = &resource->stack->deferred;
    int64_t before = strata_counters_sum(&self->counters, DEFERRED_BYTES);
    strata_deferred_settle_quietly(deferred, CU_STREAM_LEGACY);
    int64_t now = strata_counters_sum(&self->counters, DEFERRED_BYTES);
    *bytes = before > now ? (size_t)(before - now) : 0;
    return mode == STRATA_REAP_WAIT && strata_deferred_any(deferred) ? strata_deferred_refuse(deferred)
                                                                     : STRATA_SUCCESS;
}

static strata_status direct_usage(strata_resource *resource, strata_usage *usage)
{
    direct *self = (direct *)resource;
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

static strata_status direct_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    (void)resource;
    *bytes = (request->bytes + CHARGE_GRANULE - 1) & ~(size_t)(CHARGE_GRANULE - 1);
    return STRATA_SUCCESS;
}

static uint32_t direct_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND | STRATA_CAPABILITY_DEVICE_MEMORY;
}

/* The last live block that starts at or before `address`. One whose free is under way may stand between, in a range
 * that is part of a new block already. The lock is held. */
static bool find_live(const direct *self, CUdeviceptr address, strata_block *out)
{
    CUdeviceptr start = address;
    for (uint32_t slot; (slot = strata_index_floor(&self->index, start, &start)); start--)
        if (strata_entry_describe(strata_resource_table(&self->resource), slot, out))
            return true;
    return false;
}

static strata_status direct_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    direct *self = (direct *)resource;
    strata_lock_take(&self->lock);
    bool found = find_live(self, address, out) && address - out->address < out->bytes;
    strata_lock_release(&self->lock);
    if (found)
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

static int direct_device(strata_resource *resource)
{
    return ((direct *)resource)->device->ordinal;
}

static void direct_destroy(strata_resource *resource)
{
    direct *self = (direct *)resource;
    strata_index_end(&self->index);
    strata_counters_end(&self->counters);
    strata_lock_destroy(&self->lock);
    strata_host_free(self);
}

static const strata_resource_ops direct_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "direct",
    .allocate = direct_allocate,
    .deallocate = direct_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = direct_reap,
    .usage = direct_usage,
    .charge = direct_charge,
    .capabilities = direct_capabilities,
    .find = direct_find,
    .destroy = direct_destroy,
    .device = direct_device,
};

strata_status strata_direct_create(int ordinal, const strata_direct_options *options, strata_resource **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "direct is made without a place for it");
    *out = NULL;
    strata_direct_options read;
    strata_device *device;
    strata_status status = strata_options_read(&read, sizeof read, options, "strata_direct_options");
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    direct *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a direct resource");
    self->resource.ops = &direct_ops;
    self->device = device;
    strata_lock_init(&self->lock, STRATA_RANK_INDEX);
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static strata_status make_direct(int device, const void *options, strata_resource **out)
{
    return strata_direct_create(device, options, out);
}

const strata_layer strata_direct_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "direct",
    .help = "every block is a cuMemAlloc of its own",
    .options_size = sizeof(strata_direct_options),
    .create = make_direct,
};
