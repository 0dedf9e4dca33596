/* Holds, and handles for other processes. A held chunk is neither remapped (remap.c) nor returned (release.c). Nor is a
 * live block's, so the time between an allocation and its hold is safe. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "resources/pool/operations.h"
#include "resources/pool/thread_cache.h"

#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(CUmemFabricHandle) == sizeof((strata_pool_part *)NULL)->fabric, "a fabric handle has its place");

struct strata_pool_hold {
    pool *pool;
    strata_pool_hold *previous, *next; /* guarded by map_lock */
    size_t count;
    strata_pool_part *parts; /* same allocation; constant */
    uint32_t *chunks;
};

/* ---- the parts of a block ---- */

pool *pool_at_or_below(strata_resource *resource)
{
    for (strata_resource *layer = resource; layer; layer = strata_resource_next_below(resource, layer))
        if (layer->ops && layer->stack && layer->ops->describe == pool_describe) /* the stack copies ops tables */
            return (pool *)layer;
    return NULL;
}

/* In the extent of a block, or of a block that a layer cut it from. */
static bool is_taken(pool *self, CUdeviceptr address, uint64_t bytes)
{
    strata_spin_take(&self->lock);
    const uint32_t slot = self->started ? pool_heap_around(&self->heap, address) : 0;
    const strata_entry *entry = slot ? pool_entry(&self->heap, slot) : NULL;
    const bool taken = slot && pool_extent_at(&self->heap, slot)->state == POOL_TAKEN &&
                       address - pool_address_of(entry) < pool_bytes_of(entry) &&
                       bytes <= pool_bytes_of(entry) - (address - pool_address_of(entry));
    strata_spin_release(&self->lock);
    return taken;
}

static strata_status check_block(pool *self, const strata_block *block)
{
    const strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), block->id);
    const uint64_t word = entry ? atomic_load_explicit(&entry->word, memory_order_acquire) : 0;
    if (!entry || (strata_word_lives(word, block->id.generation) && !is_taken(self, block->address, block->bytes)))
        return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "the block at 0x%llx is not in memory of this pool",
                           (unsigned long long)block->address);
    if (!strata_word_lives(word, block->id.generation))
        return strata_fail(STRATA_ERROR_USE_AFTER_FREE, "cannot hold block 0x%llx: it is no longer live",
                           (unsigned long long)block->address);
    return STRATA_SUCCESS;
}

/* Not a leaving chunk, whose addresses may have a new one, nor a useless one. */
static bool part_in(const pool_chunk *chunk, const strata_block *block, strata_pool_part *part)
{
    const CUdeviceptr end = chunk->address + pool_chunk_bytes(chunk), block_end = block->address + block->bytes;
    if (!pool_chunk_bytes(chunk) || !chunk->address || chunk->leaving || end <= block->address ||
        chunk->address >= block_end)
        return false;
    const CUdeviceptr from = chunk->address > block->address ? chunk->address : block->address;
    *part = (strata_pool_part){
        .address = from,
        .bytes = (size_t)((end < block_end ? end : block_end) - from),
        .offset = (size_t)(from - chunk->address),
        .handle_bytes = (size_t)pool_chunk_bytes(chunk),
        .fd = -1,
    };
    return true;
}

static size_t count_parts(const pool *self, const strata_block *block)
{
    strata_pool_part part;
    size_t count = 0;
    for (uint32_t number = 1; number < self->store.chunk_count; number++)
        count += part_in(&self->store.chunks[number], block, &part);
    return count;
}

static void insert_part(strata_pool_hold *hold, const strata_pool_part *part, uint32_t chunk)
{
    size_t at = hold->count++;
    for (; at && hold->parts[at - 1].address > part->address; at--) {
        hold->parts[at] = hold->parts[at - 1];
        hold->chunks[at] = hold->chunks[at - 1];
    }
    hold->parts[at] = *part;
    hold->chunks[at] = chunk;
}

/* ---- holds ---- */

static strata_pool_hold *make_hold(pool *self, size_t count)
{
    strata_pool_hold *hold = strata_host_zalloc(sizeof *hold + count * (sizeof *hold->parts + sizeof *hold->chunks));
    if (!hold)
        return NULL;
    hold->pool = self;
    hold->parts = (strata_pool_part *)(void *)(hold + 1);
    hold->chunks = (uint32_t *)(void *)(hold->parts + count);
    return hold;
}

static void count_chunk(pool *self, uint32_t number, int by)
{
    pool_chunk *chunk = &self->store.chunks[number];
    const bool was = chunk->held != 0;
    chunk->held = (chunk->held + (uint32_t)by) & POOL_CHUNK_HOLDS;
    const bool is = chunk->held != 0;
    const uint64_t held = atomic_load_explicit(&self->held_bytes, memory_order_relaxed);
    atomic_store_explicit(&self->held_bytes,
                          held + (is ? pool_chunk_bytes(chunk) : 0) - (was ? pool_chunk_bytes(chunk) : 0),
                          memory_order_relaxed);
}

/* map_lock is held. NULL without host memory. */
static strata_pool_hold *hold_chunks(pool *self, const strata_block *block)
{
    strata_pool_hold *hold = make_hold(self, count_parts(self, block));
    if (!hold)
        return NULL;
    strata_pool_part part;
    for (uint32_t number = 1; number < self->store.chunk_count; number++) {
        if (!part_in(&self->store.chunks[number], block, &part))
            continue;
        insert_part(hold, &part, number);
        count_chunk(self, number, 1);
    }
    hold->next = self->holds;
    if (self->holds)
        self->holds->previous = hold;
    self->holds = hold;
    return hold;
}

/* map_lock is held. */
static void drop_hold(pool *self, strata_pool_hold *hold)
{
    for (size_t i = 0; i < hold->count; i++)
        count_chunk(self, hold->chunks[i], -1);
    if (hold->previous)
        hold->previous->next = hold->next;
    else
        self->holds = hold->next;
    if (hold->next)
        hold->next->previous = hold->previous;
    strata_host_free(hold);
}

void pool_holds_destroy(pool *self)
{
    while (self->holds)
        drop_hold(self, self->holds);
}

/* ---- handles ---- */

static void close_files(const strata_pool_hold *hold)
{
    for (size_t i = 0; i < hold->count; i++)
        if (hold->parts[i].fd >= 0)
            close(hold->parts[i].fd);
}

static strata_status export_part(pool *self, strata_pool_part *part, uint32_t chunk)
{
    const bool file = self->store.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const CUresult result =
        pool_chunk_store_export(&self->store, chunk, file ? (void *)&part->fd : (void *)part->fabric);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    part->fd = -1;
    return strata_fail_driver(result, "cuMemExportToShareableHandle", "exporting %s of a pool",
                              strata_size_text(part->handle_bytes).text);
}

/* map_lock is held. On failure no file is open. */
static strata_status export_parts(pool *self, strata_pool_hold *hold)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    for (size_t i = 0; i < hold->count && status == STRATA_SUCCESS; i++)
        status = export_part(self, &hold->parts[i], hold->chunks[i]);
    strata_call_scope_leave(&scope);
    if (status != STRATA_SUCCESS)
        close_files(hold);
    return status;
}

/* ---- public calls ---- */

static strata_status check_call(strata_resource *resource, const strata_block *block, strata_pool_hold **out,
                                pool **self)
{
    strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    if (!block || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "holding a block: %s is NULL", block ? "out" : "block");
    *self = pool_at_or_below(resource);
    return *self ? STRATA_SUCCESS
                 : strata_fail(STRATA_ERROR_INVALID_VALUE, "holding a block: no pool at or below this layer");
}

/* Unknown blocks are left to check_block. */
static strata_status check_copy(strata_resource *resource, const strata_block *block)
{
    strata_block shown;
    strata_error_suppress_begin();
    const strata_status status = resource->ops->find(resource, block->address, &shown);
    strata_error_suppress_end(false);
    const bool same = status == STRATA_SUCCESS && shown.id.table == block->id.table &&
                      shown.id.slot == block->id.slot && shown.id.generation == block->id.generation;
    return same ? strata_check_block_facts(&shown, block) : STRATA_SUCCESS;
}

static strata_status begin(strata_resource *resource, const strata_block *block, bool exports, strata_pool_hold **out)
{
    pool *self = NULL;
    if (out)
        *out = NULL;
    strata_status status = check_call(resource, block, out, &self);
    if (status != STRATA_SUCCESS)
        return status;
    if (exports && self->store.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "this pool's memory cannot be exported: make it with export=fd or export=fabric");
    if (!strata_block_is_empty(block) && (status = check_copy(resource, block)) != STRATA_SUCCESS)
        return status;
    strata_lock_take(&self->map_lock);
    status = strata_block_is_empty(block) ? STRATA_SUCCESS : check_block(self, block);
    strata_pool_hold *hold = status == STRATA_SUCCESS ? hold_chunks(self, block) : NULL;
    if (status == STRATA_SUCCESS && !hold)
        status = strata_fail_host_memory("a hold");
    if (status == STRATA_SUCCESS && exports)
        status = export_parts(self, hold);
    if (status != STRATA_SUCCESS && hold)
        drop_hold(self, hold);
    strata_lock_release(&self->map_lock);
    if (status == STRATA_SUCCESS)
        *out = hold;
    return status;
}

strata_status strata_pool_hold_begin(strata_resource *resource, const strata_block *block, strata_pool_hold **out)
{
    return begin(resource, block, false, out);
}

strata_status strata_pool_export(strata_resource *resource, const strata_block *block, strata_pool_hold **out)
{
    return begin(resource, block, true, out);
}

const strata_pool_part *strata_pool_hold_parts(const strata_pool_hold *hold, size_t *count)
{
    if (count)
        *count = hold ? hold->count : 0;
    return hold ? hold->parts : NULL;
}

void strata_pool_hold_end(strata_pool_hold *hold)
{
    if (!hold || strata_check_not_forked() != STRATA_SUCCESS)
        return;
    pool *self = hold->pool;
    strata_lock_take(&self->map_lock);
    drop_hold(self, hold);
    strata_lock_release(&self->map_lock);
}
