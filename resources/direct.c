/* direct: one cuMemAlloc for each block. A free waits on the host until nothing can touch the block, then gives it
 * back. */
#include <strata/direct.h>

#include "core/address_index.h"
#include "core/counters.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/stack.h"
#include "core/uses.h"
#include "resources/builtin.h"
#include "resources/out_of_memory.h"

enum {
    ALIGNMENT = 256,      /* CUDA C++ Programming Guide, "Device Memory Accesses": at least 256 bytes */
    CHARGE_GRANULE = 512, /* what cuMemAlloc rounds to: tests/answers/h200.txt, "memory." */
};

enum { LIVE_BYTES, LIVE_BLOCKS };

typedef struct direct {
    strata_resource resource;
    strata_device *device;
    strata_counters counters;
    strata_lock lock;
    strata_address_index index; /* live blocks by address; guarded by lock */
} direct;

static strata_status enter_block(direct *self, CUdeviceptr address, const strata_request *request, uint32_t slot,
                                 strata_block *out)
{
    strata_table *table = strata_resource_table(&self->resource);
    strata_note note;
    strata_status status = strata_note_begin(&note, self->device, request->stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_block facts = {
        .address = address,
        .bytes = request->bytes,
        .requested = request->bytes,
        .alignment = ALIGNMENT,
        .tag = request->tag,
        .stream = request->stream,
    };
    strata_block made;
    strata_entry_publish(table, slot, &facts, strata_timeline_now(note.stream.timeline), note.stream.known, &made);
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
    strata_counters_add(&self->counters, thread, LIVE_BYTES, (int64_t)request->bytes);
    strata_counters_add(&self->counters, thread, LIVE_BLOCKS, 1);
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

static strata_status wait_for_point(strata_point point, void *data)
{
    (void)data;
    return strata_point_synchronize(point);
}

/* Waits until nothing can touch the block: what was submitted to the freeing stream, and every noted use. */
static strata_status wait_for_block(direct *self, const strata_entry *entry, CUstream stream)
{
    strata_status status = STRATA_SUCCESS;
    if (stream == STRATA_STREAM_GONE) {
        strata_point last = strata_timeline_last_closed(atomic_load_explicit(&entry->home, memory_order_relaxed));
        status = last ? strata_point_synchronize(last) : STRATA_SUCCESS;
    } else {
        strata_scope scope;
        status = strata_scope_enter(&scope, self->device, strata_scope_for(stream) | STRATA_SCOPE_RELAXED);
        if (status != STRATA_SUCCESS)
            return status;
        CUresult result = strata_cu.StreamSynchronize(stream);
        strata_scope_leave(&scope);
        if (result != CUDA_SUCCESS)
            return strata_fail_driver(result, "cuStreamSynchronize",
                                      "waiting for the stream on which a block is freed");
    }
    return status == STRATA_SUCCESS ? strata_uses_visit(entry, wait_for_point, NULL) : status;
}

static strata_status direct_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    direct *self = (direct *)resource;
    strata_table *table = strata_resource_table(resource);
    strata_entry *entry;
    strata_status status = strata_entry_retire(table, block, &entry);
    if (status != STRATA_SUCCESS)
        return status;
    strata_stream_ref ref;
    if (stream != STRATA_STREAM_GONE)
        status = strata_stream_resolve(self->device, stream, &ref);
    if (status == STRATA_SUCCESS)
        status = wait_for_block(self, entry, stream);
    if (status != STRATA_SUCCESS)
        goto revive;
    /* From the moment the driver has the memory back, another thread may be given the same address. */
    strata_lock_take(&self->lock);
    strata_index_remove(&self->index, block->address);
    strata_lock_release(&self->lock);
    CUresult result = free_memory(self, block->address);
    if (result != CUDA_SUCCESS) {
        status = strata_fail_driver(result, "cuMemFree", "freeing block 0x%llx", (unsigned long long)block->address);
        strata_lock_take(&self->lock);
        strata_index_insert(&self->index, block->address, block->id.slot);
        strata_lock_release(&self->lock);
        goto revive;
    }
    strata_thread *thread = strata_thread_self();
    strata_counters_add(&self->counters, thread, LIVE_BYTES, -(int64_t)block->bytes);
    strata_counters_add(&self->counters, thread, LIVE_BLOCKS, -1);
    strata_report_completion(resource, &(strata_completion){.id = block->id, .bytes = block->bytes, .last = true});
    strata_entry_end(table, entry, block->id.slot);
    return STRATA_SUCCESS;

revive:
    strata_entry_revive(entry);
    return status;
}

static strata_status direct_usage(strata_resource *resource, strata_usage *usage)
{
    direct *self = (direct *)resource;
    size_t live = (size_t)strata_counters_sum(&self->counters, LIVE_BYTES);
    *usage = (strata_usage){
        .live_bytes = live,
        .bytes_outstanding = live,
        .live_blocks = (size_t)strata_counters_sum(&self->counters, LIVE_BLOCKS),
        .reserved_bytes = live,
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

static strata_status direct_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    direct *self = (direct *)resource;
    *out = (strata_block){0};
    CUdeviceptr start;
    strata_lock_take(&self->lock);
    uint32_t slot = strata_index_floor(&self->index, address, &start);
    bool found = slot && strata_entry_describe(strata_resource_table(resource), slot, out) &&
                 address - out->address < out->bytes;
    strata_lock_release(&self->lock);
    if (found)
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
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
    .usage = direct_usage,
    .charge = direct_charge,
    .capabilities = direct_capabilities,
    .find = direct_find,
    .destroy = direct_destroy,
};

strata_status strata_direct_create(int ordinal, const strata_direct_options *options, strata_resource **out)
{
    (void)options;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "direct is made without a place for it");
    *out = NULL;
    strata_device *device;
    strata_status status = strata_device_get(ordinal, &device);
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
